"""Problems that come with the package, a folder each."""
