"""What the papers on manifold capacity leave open: every choice in one place, stated in records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ...errors import LazyrichError, UnknownName
from ...statistics.clouds import KEPT

Law = Literal["balanced", "uniform", "one_vs_rest"]
Dichotomies = Sequence[Sequence[int]]
Inactive = Literal["zero", "support", "drop"]
Radius = Literal["ratio_of_means", "mean_of_ratios"]
Alignment = Literal["cosine", "product"]


_KNOWN = {
    "labels": get_args(Law),
    "anchors": get_args(Inactive),
    "radius": get_args(Radius),
    "alignment": get_args(Alignment),
}


@dataclass(frozen=True)
class Conventions:
    """How manifold capacity and geometry are set up. Values under different ones do not compare.

    Attributes:
        labels: law of the dichotomies: `balanced` puts half of the classes on either side,
            `uniform` puts each on a side at random, `one_vs_rest` takes the classes in turn; or
            the dichotomies themselves, rows of 1 and -1 for the classes in the order of their
            labels.
        center: whether the mean of all points becomes the origin.
        bias: a constant coordinate, in units of the mean norm of the points, that lets
            hyperplanes miss the origin; 0 for none. None is 1 for `one_vs_rest` on centered
            points, where the class by itself would otherwise never be touched, and 0 elsewhere.
        anchors: what stands for a manifold that a dichotomy does not touch: the origin (`zero`),
            the point that would be touched next (`support`), or nothing (`drop`).
        radius: R as the root of a `ratio_of_means` or of a `mean_of_ratios`.
        alignment: of two centers or axes: their `cosine`, or their inner `product`, the mean
            squared length of points being one.
        points: of each class, at most.
        classes: at most so many; a hash chooses.
        draws: of dichotomies with their targets, rounded to whole rounds of few dichotomies.
        repeats: over disjoint subsamples of points (and classes, where there are more).

    Raises:
        LazyrichError: values that make no sense.
    """

    labels: str | Dichotomies = "balanced"
    center: bool = True
    bias: float | None = None
    anchors: str = "zero"
    radius: str = "ratio_of_means"
    alignment: str = "cosine"
    points: int = 50
    classes: int = 20
    draws: int = 200
    repeats: int = 1

    def __post_init__(self) -> None:
        for name, known in _KNOWN.items():
            value = getattr(self, name)
            if isinstance(value, str) and value not in known:
                raise UnknownName(f"convention for {name}", value, known)
        if not isinstance(self.labels, str):
            object.__setattr__(self, "labels", _as_dichotomies(self.labels))
        for name, least in (("points", 1), ("classes", 2), ("draws", 20), ("repeats", 1)):
            if getattr(self, name) < least:
                raise LazyrichError(f"{name}={getattr(self, name)}: {least} or more are needed.")
        if self.points * self.repeats > KEPT:
            raise LazyrichError(
                f"{self.repeats} x {self.points} points a class, and {KEPT} are kept: "
                "ask for fewer points or repeats."
            )

    @property
    def constant(self) -> float:
        """The bias in force."""
        if self.bias is None:
            return float(self.labels == "one_vs_rest" and self.center)
        return self.bias

    def __str__(self) -> str:
        """As records state them.

        >>> print(Conventions(labels="one_vs_rest", draws=100))
        one_vs_rest labels, centered, bias 1, zero anchors, radius as ratio_of_means, cosine \
alignments, 50 points, 20 classes, 100 draws, 1 repeat
        """
        labels = self.labels if isinstance(self.labels, str) else f"{len(self.labels)} given"
        plural = "s" * (self.repeats > 1)
        return (
            f"{labels} labels, {'centered' if self.center else 'uncentered'}, "
            f"bias {self.constant:g}, {self.anchors} anchors, radius as {self.radius}, "
            f"{self.alignment} alignments, {self.points} points, {self.classes} classes, "
            f"{self.draws} draws, {self.repeats} repeat{plural}"
        )


STANDARD = Conventions()


def _as_dichotomies(rows: Dichotomies) -> Dichotomies:
    found = tuple(tuple(map(int, row)) for row in rows)
    if len({len(row) for row in found}) != 1 or {s for row in found for s in row} - {1, -1}:
        raise LazyrichError("labels: dichotomies are rows of 1 and -1, one side for each class.")
    return found
