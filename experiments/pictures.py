"""Diagonals of AGOP and NFM as one picture, small enough to be kept with the code."""

from collections.abc import Iterator
from dataclasses import replace

from lazyrich import Record, Records


def over_channels(records: Records, height: int, width: int) -> Records:
    """Diagonals over channels x height x width inputs, summed over the channels."""

    def rows() -> Iterator[Record]:
        size = height * width
        for measure in records.unique("measure"):
            sums = [0.0] * size
            for r in records.where(measure=measure):
                if r.index is not None:
                    sums[(r.index - 1) % size] += r.value
            first = records.where(measure=measure)[0]
            view = f"{first.view.partition(',')[0]}, inputs {height} x {width}"
            for place, value in enumerate(sums, 1):
                yield replace(first, index=place, value=round(value, 6), d=size, view=view)

    return Records(rows(), records.definitions.values())
