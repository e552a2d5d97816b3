package ledger

import (
	"ronbox/engines/ledger/lverify"
	"ronbox/store"
)

// Checks are what proves the ledger of a file: chain, roots, sums, and that the derived rows follow from the journal.
func Checks() []store.Check { return lverify.Checks() }
