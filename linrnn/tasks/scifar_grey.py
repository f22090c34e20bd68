"""CIFAR-10 as sequences of grey pixels, the variant of the Long Range Arena."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from linrnn.tasks import scifar
from linrnn.tasks.base import Progress, Source
from linrnn.tasks.store import Draft

# Shares of red, green and blue in the luma of ITU-R 601 (.299, .587, .114) in 65,536ths, as the usual converters round.
LUMA = np.array([19595, 38470, 7471], dtype=np.uint32)
MEAN = (122.6 / 255,)
STD = (61 / 255,)
NOTE = "CIFAR-10 pictures in grey, pixel by pixel: one of 10 things"


def read(folder: Path, draft: Draft, progress: Progress) -> None:
    """Read the binary version of CIFAR-10, from the folder `cifar-10-batches-bin` or a folder that contains it."""
    scifar.store(folder, draft, progress, grey, channels=1, mean=MEAN, std=STD, note=NOTE)


def grey(colour: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Colour (..., 3) to luma (..., 1)."""
    luma = np.zeros(colour.shape[:-1], dtype=np.uint32)
    for channel, share in enumerate(LUMA):
        luma += colour[..., channel] * share
    return ((luma + 0x8000) >> 16).astype(np.uint8)[..., None]


SOURCE = Source(
    name="scifar-grey",
    note=NOTE,
    examples=scifar.SIZES,
    bytes=sum(scifar.SIZES) * (scifar.PIXELS + 8),
    origin=scifar.ORIGIN,
    licence=scifar.LICENCE,
    archive=scifar.ARCHIVE,
    members=scifar.MEMBERS,
    read=read,
)
