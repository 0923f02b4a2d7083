"""A graph on disk: flat files that are opened by mapping them into memory."""

from hanme.data.store.open import is_store, open_store, stored_features
from hanme.data.store.write import check_store, write_store

__all__ = ["check_store", "is_store", "open_store", "stored_features", "write_store"]
