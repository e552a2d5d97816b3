package document

import (
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/b3"
)

// Horizon tells another node where this log begins, and which earlier versions it has.
type Horizon struct {
	MinVersion uint64   `json:"min_version" doc:"oldest complete version; 0 before genesis"`
	Statement  string   `json:"statement,omitzero" doc:"signed note of the log about what was pruned"`
	Kept       []uint64 `json:"kept" doc:"pruned versions whose entry and payload are kept: genesis and changes of signers"`
}

// AuditChain is a part of the audit chain: canonical records in order, and the head of the chain
// when they were read.
type AuditChain struct {
	Records []jsontext.Value `json:"records"`
	Seq     uint64           `json:"seq" doc:"of the last record of the chain"`
	B3      b3.Digest        `json:"b3" format:"b3" doc:"hash of that record"`
}

// InclusionProof proves that the entry of a version is in the log of Size versions.
type InclusionProof struct {
	Index      uint64      `json:"index" doc:"version - 1"`
	Size       uint64      `json:"size"`
	Hashes     []tlog.Hash `json:"hashes" doc:"standard base64 of 32 bytes each, from the leaf upwards"`
	Checkpoint string      `json:"checkpoint,omitzero" doc:"the signed note of that size, if it is kept"`
}

// ConsistencyProof proves that the log of From versions is the beginning of that of To.
type ConsistencyProof struct {
	From   uint64      `json:"from"`
	To     uint64      `json:"to"`
	Hashes []tlog.Hash `json:"hashes" doc:"standard base64 of 32 bytes each"`
}
