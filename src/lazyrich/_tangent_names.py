"""What the parts of a tangent kernel are called."""

from torch import nn


def layer_of(parameter: str, model: nn.Module) -> str:
    """The module that holds a parameter; the model itself goes by the name of its class.

    What a parametrization is made of is its layer's. No module's name ends in a dot, which tells
    a name that would be taken.
    """
    layer, _, parametrized = parameter.partition(".parametrizations.")
    layer = layer if parametrized else layer.rpartition(".")[0]
    if layer:
        return layer
    own = type(model).__name__
    return f"{own}." if own in dict(model.named_modules()) else own


def row_of(part: str) -> str:
    """The name of a part's row in a table, where that of the whole is `model`."""
    return "model." if part == "model" else part
