package server

import (
	"context"

	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/httpapi"
	nodehttp "ronbox/httpapi/node"
	nodeapi "ronbox/httpapi/wire/node"
)

// console returns the console. It returns a *ConflictError if the console is off.
func (n *Node) console() (consoleEngine, error) {
	e := engineOf[consoleEngine](n)
	if e.Console == nil {
		return e, &nodehttp.ConflictError{Reason: "the console is off: set console.enabled and restart the node"}
	}
	return e, nil
}

// Sessions returns the open sessions of the console, oldest first.
func (n *Node) Sessions() (nodeapi.SessionList, error) {
	e, err := n.console()
	if err != nil {
		return nodeapi.SessionList{}, err
	}
	return nodeapi.SessionList{Sessions: e.Sessions()}, nil
}

// EndSession ends a session of the console. It returns ErrNoSuch if there is no such session.
func (n *Node) EndSession(ctx context.Context, by engines.Actor, corrID, id string) error {
	e, err := n.console()
	if err != nil {
		return err
	}
	if !e.EndSession(id) {
		return httpapi.ErrNoSuch
	}
	n.note(context.WithoutCancel(ctx), tokens.AuditEvent("console.ended", by, corrID, map[string]string{"session": id}))
	return nil
}
