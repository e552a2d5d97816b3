package rewarder

import (
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/rewarder/document"
	"ronbox/engines/rewarder/record"
)

// PolicyPut is the body of PUT /rewarder/policy/{id}.
type PolicyPut struct {
	Body       jsontext.Value     `json:"body" doc:"the policy, in any spelling"`
	Signatures []record.Signature `json:"signatures" doc:"signatures of the hash"`
}

// EmitRequest is the body of POST /rewarder/epochs/{epoch}/emit. The body is optional.
type EmitRequest struct {
	SkipRefused bool `json:"skip_refused,omitzero" doc:"park payees that the ledger refuses, from now on"`
}

// UsageRow is one line of a part: the quantity of a metric of an actor, for one content or for
// none.
type UsageRow struct {
	Actor   string `json:"actor"`
	Content string `json:"content,omitzero" format:"b3"`
	Metric  string `json:"metric"`
	Qty     string `json:"qty" doc:"a decimal string up to 2^64-1"`
}

// Documents of the engine.
type (
	AllocationPage = document.AllocationPage
	EpochPage      = document.EpochPage
	ParkedPage     = document.ParkedPage
	Run            = document.Run
)
