//! Hooks wrap any endpoint: they see its verbs and never change a protocol.
