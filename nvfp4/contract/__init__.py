"""The contest's problem: types, inputs, reference, layouts; some are links to files at the top."""
