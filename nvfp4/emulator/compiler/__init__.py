"""From a flat kernel to Python: actions in basic blocks (`lower`), then text (`codegen`)."""
