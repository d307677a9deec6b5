"""From loop functions to code: the back ends."""
