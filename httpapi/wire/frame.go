package wire

import (
	"fmt"
	"strings"
)

// Names of the events that every stream has.
const (
	EventHello    = "hello"
	EventLagged   = "lagged"
	EventShutdown = "shutdown"
)

// Ready is the body of GET /readyz with any status.
type Ready struct {
	Ready       bool                    `json:"ready"`
	WriteReady  bool                    `json:"write_ready"`
	ReadReady   bool                    `json:"read_ready"`
	Degraded    bool                    `json:"degraded"`
	Missing     []string                `json:"missing" doc:"failing keys: registry.commit_ready"`
	RetryAfter  int                     `json:"retry_after"`
	Incarnation string                  `json:"incarnation"`
	Version     uint64                  `json:"version,omitzero" doc:"version of the registry's HEAD"`
	HeadB3      string                  `json:"head_b3,omitzero" format:"b3"`
	Services    map[string]ServiceReady `json:"services"`
}

// ServiceReady is the part of Ready about one service.
type ServiceReady struct {
	Ready      bool     `json:"ready"`
	WriteReady bool     `json:"write_ready"`
	Missing    []string `json:"missing,omitempty"`
	State      string   `json:"state,omitzero" enum:"not_begun" doc:"why it is not ready though nothing is wrong"`
}

// VersionInfo is the body of GET /version.
type VersionInfo struct {
	Version      string            `json:"version"`
	Commit       string            `json:"commit,omitzero"`
	Go           string            `json:"go"`
	Schema       int               `json:"schema" doc:"schema of the database file"`
	NodeID       string            `json:"node_id"`
	Incarnation  string            `json:"incarnation"`
	Services     map[string]string `json:"services" doc:"mode of each service: on, off"`
	Schemas      map[string]string `json:"schemas" doc:"version of the wire schema of each service"`
	Formats      map[string]uint64 `json:"formats,omitempty" doc:"version of the tables of each service that has one"`
	Deprecations []string          `json:"deprecations"`
}

// ProblemType is the media type of every refusal.
const ProblemType = "application/problem+json"

// LeaderHeader is the header with the URL of the node that leads a cluster. Another node sends it
// in the answers of requests that it has forwarded, and if it refuses one as not_leader. It is
// absent if the URL is not known.
const LeaderHeader = "Ronbox-Leader"

// Problem is the body of every answer with status 400 or above.
type Problem struct {
	Type       string         `json:"type" doc:"urn:ronbox:problem:<service>:<reason>" example:"urn:ronbox:problem:wallet:nonce_gap"`
	Title      string         `json:"title" example:"Nonce is ahead"`
	Status     int            `json:"status" example:"409"`
	Detail     string         `json:"detail,omitzero"`
	Instance   string         `json:"instance,omitzero" doc:"the correlation id as a URN"`
	Reason     string         `json:"reason" doc:"lower_snake, the same for all services; open set" example:"nonce_gap"`
	Service    string         `json:"service"`
	Retryable  bool           `json:"retryable"`
	CorrID     string         `json:"corr_id,omitzero"`
	RetryAfter int            `json:"retry_after,omitzero" doc:"seconds until a retry"`
	Details    map[string]any `json:"details,omitempty"`
}

// Error describes the refusal for people.
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

// Unknown reports whether the outcome of the refused request is unknown. Only repeating the same
// request shows it.
func (p *Problem) Unknown() bool { return p.Details["outcome"] == "unknown" }
