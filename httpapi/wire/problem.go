package wire

import (
	"fmt"
	"strings"
)

// ProblemType is the media type of every refusal.
const ProblemType = "application/problem+json"

// Problem is the body of every answer with status 400 or above.
type Problem struct {
	Type       string         `json:"type" doc:"urn:ronbox:problem:<service>:<reason>"`
	Title      string         `json:"title"`
	Status     int            `json:"status"`
	Detail     string         `json:"detail,omitzero"`
	Instance   string         `json:"instance,omitzero" doc:"the correlation id as a URN"`
	Code       string         `json:"code" doc:"the service's own spelling"`
	Reason     string         `json:"reason" doc:"lower_snake, one vocabulary for all services"`
	Service    string         `json:"service"`
	Retryable  bool           `json:"retryable"`
	CorrID     string         `json:"corr_id,omitzero"`
	RetryAfter int            `json:"retry_after,omitzero" doc:"seconds until it is worth another try"`
	Details    map[string]any `json:"details,omitempty"`
}

// Error says what was refused and why, for people.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d %s)", p.Title, p.Status, p.Reason)
	if p.Detail != "" {
		b.WriteString(": " + p.Detail)
	}
	if p.CorrID != "" {
		b.WriteString(" [" + p.CorrID + "]")
	}
	return b.String()
}

// Unknown tells whether the outcome of the refused request is unknown, so that
// only the same request repeated can tell.
func (p *Problem) Unknown() bool { return p.Details["outcome"] == "unknown" }
