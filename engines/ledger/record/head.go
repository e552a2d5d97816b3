package record

import "ronbox/appliance/b3"

// Head is where a ledger stands. The zero Head is that of an empty one.
type Head struct {
	Batches  uint64    `json:"batches"`   // the size of the log of batch roots
	Root     b3.Digest `json:"log_root"`  // of the log
	LastRoot b3.Digest `json:"last_root"` // of the last batch
	Seq      uint64    `json:"seq"`       // of the last record
}

// Log is the part of h that a consistency proof speaks of.
func (h Head) Log() LogHead { return LogHead{Batches: h.Batches, Root: h.Root} }

// LogHead is the log of batch roots at one size.
type LogHead struct {
	Batches uint64    `json:"batches"`
	Root    b3.Digest `json:"log_root"`
}
