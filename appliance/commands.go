package appliance

import (
	"maps"
	"strconv"

	"ronbox/engines"
	"ronbox/store"
)

// ownService is the first word of the node's own commands and the owner of their bucket.
const ownService = "node"

// auditNote puts one row on the audit chain, for what the node does outside the file.
type auditNote struct{ Event store.Event }

// Kind implements store.Command.
func (auditNote) Kind() string { return "node.note/1" }

// Apply writes the row.
func (c auditNote) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Audit(c.Event)
	return struct{}{}, nil
}

// auditEvent fills in who asked.
func auditEvent(name string, by engines.Actor, corrID string, detail map[string]string) store.Event {
	e := store.Event{
		Event: name, Decision: "allow", CorrID: corrID, CapID: by.CapID, Principal: by.Principal, Detail: maps.Clone(detail),
	}
	maps.DeleteFunc(e.Detail, func(_, v string) bool { return v == "" })
	if by.UID != nil {
		e.UID = strconv.FormatUint(uint64(*by.UID), 10)
	}
	return e
}
