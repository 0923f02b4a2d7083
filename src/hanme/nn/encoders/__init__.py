"""Metapath instance encoders, chosen by name, class or instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hanme.errors import HanmeError
from hanme.graph.metapath import Metapath
from hanme.nn.checks import make
from hanme.nn.encoders.base import Encoder, Terms
from hanme.nn.encoders.direct import Direct
from hanme.nn.encoders.end import End
from hanme.nn.encoders.linear import Linear
from hanme.nn.encoders.mean import Mean
from hanme.nn.encoders.multihop import Multihop
from hanme.nn.encoders.rotate import RotatE

__all__ = [
    "ENCODERS",
    "Direct",
    "Encoder",
    "End",
    "Linear",
    "Mean",
    "Multihop",
    "RotatE",
    "Terms",
    "make_encoder",
]

ENCODERS: dict[str, type[Encoder]] = {
    "multihop": Multihop,
    "direct": Direct,
    "mean": Mean,
    "linear": Linear,
    "rotate": RotatE,
    "end": End,
}


def make_encoder(
    encoder: str | type[Encoder] | Encoder,
    heads: int,
    channels: int,
    metapaths: Sequence[Metapath],
    options: Mapping[str, object],
) -> Encoder:
    """Make an encoder from its name or class and its options, or take the one given."""
    if isinstance(encoder, Encoder):
        if options:
            raise HanmeError(f"an encoder that is made already takes no {', '.join(options)}")
        if (encoder.heads, encoder.channels) != (heads, channels):
            raise HanmeError(
                f"Expected an encoder for {heads} heads of {channels}, "
                f"but got one for {encoder.heads} heads of {encoder.channels}"
            )
        return encoder
    own = {"heads": heads, "channels": channels, "metapaths": metapaths}
    return make("encoder", encoder, ENCODERS, own, options)
