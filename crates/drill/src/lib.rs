//! The flood contract: floods, honest clients, floors, verdicts.
