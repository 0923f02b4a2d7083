"""The on-disk format of graphs: flat files that are mapped into memory; also used as cache."""

from hanme.data.store.cache import GraphCache, content_key
from hanme.data.store.open import check_store, is_store, open_store, stored_features
from hanme.data.store.write import write_store

__all__ = [
    "GraphCache",
    "check_store",
    "content_key",
    "is_store",
    "open_store",
    "stored_features",
    "write_store",
]
