package ledger

import (
	"ronbox/httpapi/wire"
)

// Root is one batch of the ledger, as GET /v1/ledger/roots lists it.
type Root struct {
	Batch uint64       `json:"batch" min:"1"`
	Seq   uint64       `json:"seq" min:"1" doc:"its last record"`
	Root  string       `json:"root" format:"b3"`
	TS    wire.Instant `json:"ts"`
}

// Roots is the body of GET /v1/ledger/roots, oldest first.
type Roots struct {
	Roots []Root `json:"roots"`
	Next  uint64 `json:"next,omitzero" doc:"?since= of the next page"`
}

// LedgerHead is the body of GET /v1/ledger/head.
type LedgerHead struct {
	Batches  uint64 `json:"batches" doc:"number of batches, which is the size of the log of their roots"`
	LogRoot  string `json:"log_root" format:"b3" doc:"root of that log"`
	LastRoot string `json:"last_root" format:"b3" doc:"root of the last batch"`
	Seq      uint64 `json:"seq" doc:"the last record"`
}

// Proof is the body of GET /v1/tx/{txid}/proof: a proof that a record, and the records that it
// refers to, are in the ledger as of the batch last. A verifier reads these bytes unchanged.
type Proof struct {
	Format string      `json:"format" enum:"ronbox-ledger-proof-v1"`
	Tx     Inclusion   `json:"tx"`
	Names  []Inclusion `json:"names" doc:"the records that opened the accounts and declared the asset"`
	Hold   *Inclusion  `json:"hold,omitzero" doc:"the record of the hold that the transaction ends"`
	Last   LastBatch   `json:"last"`
	Head   LedgerHead  `json:"head"`
}

// Inclusion shows that the ledger holds a record.
type Inclusion struct {
	Record  []byte   `json:"record" doc:"the bytes that are stored and hashed"`
	Index   uint64   `json:"index" doc:"index of the record in its batch, from 0"`
	Path    []string `json:"path" format:"b3" doc:"from the record to the root of its batch"`
	Header  []byte   `json:"header" doc:"header of the batch, as stored and hashed"`
	LogPath []string `json:"log_path" format:"b3" doc:"from the batch's root to the root of the log"`
}

// LastBatch is where the log of a proof ends.
type LastBatch struct {
	Header  []byte   `json:"header"`
	LogPath []string `json:"log_path" format:"b3"`
}

// LogHead is the log of the batches' roots at one size.
type LogHead struct {
	Batches uint64 `json:"batches" min:"1"`
	LogRoot string `json:"log_root" format:"b3"`
}

// Consistency is the body of GET /v1/ledger/consistency: that the later log began as the earlier
// one.
type Consistency struct {
	Format string   `json:"format" enum:"ronbox-ledger-consistency-v1"`
	From   LogHead  `json:"from"`
	To     LogHead  `json:"to"`
	Path   []string `json:"path" format:"b3"`
}

// ExportEnd is the last line of GET /v1/ledger/export, where that fails after it began.
type ExportEnd struct {
	Problem *wire.Problem `json:"problem,omitzero"`
}
