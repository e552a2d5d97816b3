package ledger

// Local is the ledger over the node's store.
type Local struct{}
