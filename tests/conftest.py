"""Every test starts from the same seed, on one thread, with shapes and types checked inside."""

from jaxtyping import install_import_hook

# Where the mathematics is, every call is held to its annotations. The public gates are left out:
# they meet wrong types themselves, with messages that are tested.
install_import_hook(
    [
        "lazyrich._evaluation",
        "lazyrich._reader",
        "lazyrich._records",
        "lazyrich._sums",
        "lazyrich._views",
        "lazyrich.measures",
        "lazyrich.rfm._kernel",
        "lazyrich.rfm._machine",
        "lazyrich.rfm._outer_products",
        "lazyrich.rfm._solvers",
        "lazyrich.statistics",
    ],
    "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))",
)

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
