package tables

import (
	"fmt"
	"strings"

	"ronbox/engines"
	"ronbox/engines/registry/document"
)

// Events of the audit chain that the check of a file reads.
const (
	EventProposed  = "proposal.created"
	EventApproved  = "approve.recorded"
	EventForgotten = "proposal.forgotten"
	EventAdopted   = "forkguard.adopted"
)

// EndEvent returns the event that ends a proposal without a version.
func EndEvent(state string) string { return "proposal." + state }

// EndState returns the state that an event puts a proposal into, or "" if the event does not end a
// proposal without a version.
func EndState(event string) string {
	switch state := strings.TrimPrefix(event, "proposal."); state {
	case document.StateWithdrawn, document.StateExpired, document.StateStale:
		return state
	}
	return ""
}

// OwnerOf returns the name of the actor that may withdraw a proposal: its capability, or the uid of
// a peer of the socket.
func OwnerOf(a engines.Actor) string {
	if a.CapID == "" && a.UID != nil {
		return fmt.Sprintf("uid:%d", *a.UID)
	}
	return a.CapID
}

// maxAuditText bounds each text of an audit record, so that the record stays within its own bound.
const maxAuditText = 256

// ClipText returns the beginning of s that an audit record keeps, as valid UTF-8.
func ClipText(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxAuditText)], "?") }
