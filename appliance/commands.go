package appliance

import (
	"fmt"
	"maps"
	"strconv"

	"ronbox/engines"
	"ronbox/store"
)

// ownService is the first word of the node's own commands and the owner of their bucket.
const ownService = "node"

// authBucket holds the public part of the token keys: id, salt, state and dates, never a secret.
var authBucket = &store.Bucket{Name: "auth", Class: store.Derived}

// kids has a row for each token key, by its id.
var kids = store.NewTable(authBucket, store.String[kidID](), store.CBOR[kidRow]())

// kidID names a token key: a ULID behind "kid/".
type kidID string

const kidPrefix = "kid/"

// States of a token key.
const (
	kidActive = "active" // mints and verifies
)

type kidRow struct {
	Salt      []byte `cbor:"1,keyasint"`
	State     string `cbor:"2,keyasint"`
	CreatedAt int64  `cbor:"3,keyasint"` // Unix ns
}

// addKid puts the first token key into the file.
type addKid struct {
	ID   kidID
	Salt []byte
}

// Kind implements store.Command.
func (addKid) Kind() string { return "node.add_kid/1" }

// Apply adds the key unless an active one is there, and says which one is active.
func (c addKid) Apply(r store.Reader, at store.Stamp, w *store.Writes) (kidID, error) {
	if id, ok := activeKid(r); ok {
		return id, nil
	}
	if _, taken := kids.Get(r, c.ID); taken {
		return "", fmt.Errorf("token key %s is there already", c.ID)
	}
	kids.Put(w, c.ID, kidRow{Salt: c.Salt, State: kidActive, CreatedAt: at.At})
	w.Audit(store.Event{Event: "auth.kid_added", Decision: "allow", Detail: map[string]string{"kid": string(c.ID)}})
	return c.ID, nil
}

func activeKid(r store.Reader) (kidID, bool) {
	for id, row := range kids.Range(r, kidPrefix, kidPrefix+"\xff") {
		if row.State == kidActive {
			return id, true
		}
	}
	return "", false
}

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
	if by.UID != nil {
		e.UID = strconv.FormatUint(uint64(*by.UID), 10)
	}
	return e
}
