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
	Roots      []Root `json:"roots"`
	Next       uint64 `json:"next,omitzero" doc:"?since= of the next page"`
	FirstBatch uint64 `json:"first_batch,omitzero" doc:"the oldest batch that is there, if the page begins with it because older ones are in closed periods"`
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
	Format string      `json:"format" enum:"ronbox-ledger-proof-v1|ronbox-ledger-proof-v2" doc:"v2 if past is there"`
	Tx     Inclusion   `json:"tx"`
	Names  []Inclusion `json:"names" doc:"the records that opened the accounts and declared the asset, unless past has their names"`
	Past   *ProofPast  `json:"past,omitzero" doc:"names that were given in closed periods"`
	Hold   *Inclusion  `json:"hold,omitzero" doc:"the record of the hold that the transaction ends"`
	Last   LastBatch   `json:"last"`
	Head   LedgerHead  `json:"head"`
}

// ProofPast shows names that were given in closed periods. The digest of the statement is in the
// record that closed its period, and the root of the log of names in the statement.
type ProofPast struct {
	Names     []ProofName `json:"names"`
	Statement string      `json:"statement" doc:"text of the newest statement"`
	Close     Inclusion   `json:"close" doc:"the record that closed its period"`
}

// ProofName shows that the log of names of closed periods has a name.
type ProofName struct {
	Kind  string   `json:"kind" enum:"account|asset"`
	Ref   uint64   `json:"ref" min:"1" doc:"what records have in place of the name"`
	Name  string   `json:"name"`
	Index uint64   `json:"index" doc:"index of its leaf in the log of names, from 0"`
	Path  []string `json:"path" format:"b3" doc:"from the leaf to the root of the log of names"`
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

// LedgerHorizon is the body of GET /v1/ledger/horizon: the end of the last closed period. Period 0
// says that no period is closed.
type LedgerHorizon struct {
	Period       uint64       `json:"period"`
	Seq          uint64       `json:"seq" doc:"its last record"`
	Batch        uint64       `json:"batch" doc:"its last batch"`
	At           wire.Instant `json:"at,omitzero" doc:"when that was written"`
	Statement    string       `json:"statement,omitzero" format:"b3" doc:"digest of its statement"`
	DropSeq      uint64       `json:"drop_seq" doc:"records up to this have left the database"`
	ReclaimBytes int64        `json:"reclaim_bytes" doc:"bytes that are still to leave it, about"`
}

// LedgerPeriod is a closed period of the ledger.
type LedgerPeriod struct {
	Period    uint64       `json:"period" min:"1"`
	FromSeq   uint64       `json:"from_seq" min:"1"`
	ToSeq     uint64       `json:"to_seq" min:"1"`
	FromBatch uint64       `json:"from_batch" min:"1"`
	ToBatch   uint64       `json:"to_batch" min:"1"`
	FromAt    wire.Instant `json:"from_at"`
	ToAt      wire.Instant `json:"to_at"`
	LogRoot   string       `json:"log_root" format:"b3" doc:"root of the log of batch roots after it"`
	StateRoot string       `json:"state_root" format:"b3" doc:"root of the state after it"`
	Statement string       `json:"statement" doc:"text of its statement, of which the digest is recorded"`
	CloseSeq  uint64       `json:"close_seq" doc:"the record that closed it"`
	ClosedAt  wire.Instant `json:"closed_at"`
	File      string       `json:"file" doc:"name of its file, in ledger.periods_dir or the folder that was given"`
	FileB3    string       `json:"file_b3" format:"b3" doc:"of the file"`
	ContentB3 string       `json:"content_b3" format:"b3" doc:"of its lines"`
	Bytes     uint64       `json:"bytes" doc:"length of the file"`
	Copies    int          `json:"copies" doc:"copies in the archive of the node"`
}

// LedgerPeriods is the body of GET /v1/ledger/periods, oldest first.
type LedgerPeriods struct {
	Periods []LedgerPeriod `json:"periods"`
	Next    uint64         `json:"next,omitzero" doc:"?after= of the next page"`
}
