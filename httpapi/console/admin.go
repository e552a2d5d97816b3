package console

import "ronbox/httpapi/node"

// Sessions returns the open sessions, oldest first, as GET /admin/v1/sessions shows them.
func (h *Console) Sessions() []node.Session {
	out := []node.Session{}
	for _, one := range h.sessions.list(h.d.Now()) {
		out = append(out, node.Session{
			ID:        one.ID,
			Kind:      one.Kind,
			Write:     one.Write,
			From:      one.From,
			BeganAt:   one.Began.UTC(),
			SeenAt:    one.Seen.UTC(),
			ExpiresAt: one.Ends.UTC(),
		})
	}
	return out
}

// EndSession ends the session with an id that Sessions returned. It reports whether there was one.
func (h *Console) EndSession(id string) bool { return h.sessions.endByID(id) }
