"""The on-disk format of graphs: flat files that are mapped into memory; also used as cache."""
