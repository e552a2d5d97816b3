package member

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"ronbox/store"
)

// Bucket holds the hashes of tokens and the certificates that were issued and wait for their
// admission.
var Bucket = &store.Bucket{Name: "cluster/tokens"}

// Buckets returns the buckets of the service "cluster".
func Buckets() []*store.Bucket { return []*store.Bucket{Bucket} }

// The tables of the bucket, told apart by the first word of their keys.
var (
	tokens = store.NewTable(Bucket, store.String[tokenID](), store.CBOR[tokenRow]()).Summed()
	issues = store.NewTable(Bucket, store.String[issueID](), store.CBOR[issueRow]()).Summed()
)

const (
	tokenPrefix = "tok/"
	issuePrefix = "iss/"
	after       = "\xff" // sorts after every key of a prefix
)

// Bounds of the bucket.
const (
	maxTokens = 64
	maxIssues = 64
	admitWith = 24 * time.Hour // from the issue of a certificate to the first admission
)

var (
	// ErrManyTokens is returned when 64 tokens are open or 64 nodes wait for their admission.
	ErrManyTokens = errors.New("cluster: too many tokens are open; wait until some have expired")
	// ErrToken is returned for a token that is unknown, expired, or redeemed by another node.
	ErrToken = errors.New("cluster: the token is unknown, expired or used")
)

// hash is a SHA-256.
type hash = [32]byte

// tokenID is "tok/" and the hash of the secret in hex.
type tokenID string

func newTokenID(h hash) tokenID { return tokenPrefix + tokenID(hex.EncodeToString(h[:])) }

// tokenRow is one token.
type tokenRow struct {
	Expires int64  `cbor:"1,keyasint"` // Unix ns
	Standby bool   `cbor:"2,keyasint"`
	Server  string `cbor:"3,keyasint"` // "" until it is redeemed
}

// issueID is "iss/" and the id of the server.
type issueID string

// issueRow is a certificate whose node was not admitted yet.
type issueRow struct {
	Expires int64  `cbor:"1,keyasint"` // Unix ns
	Standby bool   `cbor:"2,keyasint"`
	Key     []byte `cbor:"3,keyasint"` // hash of the public key
	Old     string `cbor:"4,keyasint"` // id that the node had before, "" if it is new
}

// issued returns the row of a server whose certificate was issued and that was not admitted yet.
func issued(r store.Reader, server string, now int64) (issueRow, bool) {
	row, known := issues.Get(r, issueID(issuePrefix+server))
	return row, known && row.Expires > now
}

// mint stores a token. The result is the time of its expiry, Unix ns.
type mint struct {
	Hash    hash
	TTL     int64 // ns
	Standby bool
	Note    store.Event
}

// Kind implements store.Command.
func (mint) Kind() string { return "cluster.token/1" }

// Apply removes expired rows first.
func (c mint) Apply(r store.Reader, at store.Stamp, w *store.Writes) (int64, error) {
	open := 0
	for id, row := range tokens.Range(r, tokenPrefix, tokenPrefix+after) {
		if row.Expires > at.At {
			open++
			continue
		}
		tokens.Delete(w, id)
	}
	sweepIssues(r, at, w)
	if open >= maxTokens {
		return 0, ErrManyTokens
	}
	expires := at.At + c.TTL
	tokens.Put(w, newTokenID(c.Hash), tokenRow{Expires: expires, Standby: c.Standby})
	w.Audit(detailed(c.Note, "standby", strconv.FormatBool(c.Standby),
		"expires", time.Unix(0, expires).UTC().Format(time.RFC3339)))
	return expires, nil
}

// sweepIssues removes expired rows, and returns how many are left.
func sweepIssues(r store.Reader, at store.Stamp, w *store.Writes) (left int) {
	for id, row := range issues.Range(r, issuePrefix, issuePrefix+after) {
		if row.Expires > at.At {
			left++
			continue
		}
		issues.Delete(w, id)
	}
	return left
}

// redeem redeems a token for a key. The same key may redeem it again and gets the same server.
type redeem struct {
	Hash   hash
	Key    hash
	Server string // id for the node, unless it has one
	Note   store.Event
}

// Kind implements store.Command.
func (redeem) Kind() string { return "cluster.redeem/1" }

// Apply returns ErrToken if the token is unknown, expired or redeemed for another key.
func (c redeem) Apply(r store.Reader, at store.Stamp, w *store.Writes) (server string, err error) {
	id := newTokenID(c.Hash)
	row, known := tokens.Get(r, id)
	if !known || row.Expires <= at.At {
		return "", ErrToken
	}
	if row.Server != "" {
		had, waits := issued(r, row.Server, at.At)
		if !waits || string(had.Key) != string(c.Key[:]) {
			return "", ErrToken
		}
		return row.Server, nil
	}
	if sweepIssues(r, at, w) >= maxIssues {
		return "", ErrManyTokens
	}
	row.Server = c.Server
	tokens.Put(w, id, row)
	putIssue(w, at, c.Server, issueRow{Standby: row.Standby, Key: c.Key[:]})
	w.Audit(detailed(c.Note, "server", c.Server, "standby", strconv.FormatBool(row.Standby)))
	return c.Server, nil
}

func putIssue(w *store.Writes, at store.Stamp, server string, row issueRow) {
	row.Expires = at.At + int64(admitWith)
	issues.Put(w, issueID(issuePrefix+server), row)
}

// rejoin issues a new id to a member that has lost its file. The same key gets the same server.
type rejoin struct {
	Old     string // id of the member
	Member  bool   // Old is a member
	Standby bool   // so is the member
	Key     hash
	Server  string // id for the node, unless it has one
	Note    store.Event
}

// Kind implements store.Command.
func (rejoin) Kind() string { return "cluster.rejoin/1" }

// Apply returns ErrToken if Old is not a member, unless the key has an id already.
func (c rejoin) Apply(r store.Reader, at store.Stamp, w *store.Writes) (server string, err error) {
	for id, row := range issues.Range(r, issuePrefix, issuePrefix+after) {
		if row.Expires > at.At && row.Old == c.Old && string(row.Key) == string(c.Key[:]) {
			return strings.TrimPrefix(string(id), issuePrefix), nil
		}
	}
	if !c.Member {
		return "", fmt.Errorf("%w: %s is not a member", ErrToken, c.Old)
	}
	if sweepIssues(r, at, w) >= maxIssues {
		return "", ErrManyTokens
	}
	putIssue(w, at, c.Server, issueRow{Standby: c.Standby, Key: c.Key[:], Old: c.Old})
	w.Audit(detailed(c.Note, "server", c.Server, "old", c.Old))
	return c.Server, nil
}

// admitted removes the row of a node that has become a member.
type admitted struct {
	Server string
	Note   store.Event // of the removal; no Event: none
}

// Kind implements store.Command.
func (admitted) Kind() string { return "cluster.admitted/1" }

// Apply removes the row, if there is one.
func (c admitted) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	id := issueID(issuePrefix + c.Server)
	row, known := issues.Get(r, id)
	if !known {
		return struct{}{}, nil
	}
	issues.Delete(w, id)
	if c.Note.Event != "" {
		w.Audit(detailed(c.Note, "server", c.Server, "standby", strconv.FormatBool(row.Standby)))
	}
	return struct{}{}, nil
}

// Forget removes the row of a node that is about to be removed: with the row it could join by
// itself.
func Forget(ctx context.Context, s *store.Store, server string) error {
	_, err := store.Commit(ctx, s, store.Control, admitted{Server: server})
	return err
}

// detailed returns e with further details, given as name, value, ….
func detailed(e store.Event, pairs ...string) store.Event {
	detail := maps.Clone(e.Detail)
	if detail == nil {
		detail = map[string]string{}
	}
	for i := 0; i < len(pairs); i += 2 {
		detail[pairs[i]] = pairs[i+1]
	}
	e.Detail = detail
	return e
}
