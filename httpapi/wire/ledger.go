package wire

import "time"

// Root is one batch of the ledger, as GET /v1/ledger/roots lists it.
type Root struct {
	Batch uint64    `json:"batch"`
	Seq   uint64    `json:"seq" doc:"its last record"`
	Root  string    `json:"root" format:"b3"`
	TS    time.Time `json:"ts"`
}

// Roots is the body of GET /v1/ledger/roots, oldest first.
type Roots struct {
	Roots []Root `json:"roots"`
	Next  uint64 `json:"next,omitzero" doc:"?since= of the next page"`
}

// LedgerHead is the body of GET /v1/ledger/head.
type LedgerHead struct {
	Batches  uint64 `json:"batches" doc:"how many there are: the size of the log of their roots"`
	Root     string `json:"root" format:"b3" doc:"of that log"`
	LastRoot string `json:"last_root" format:"b3" doc:"of the last batch"`
	Seq      uint64 `json:"seq" doc:"the last record"`
}
