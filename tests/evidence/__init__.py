"""Evidence for the tests of attribution: records written by hand, shaped like those a GPU gives."""
