package tokens

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/httpapi/auth"
	"ronbox/store"
)

// Bucket holds the public part of the token keys (id, salt, state and dates, never a secret), the
// claims of minted tokens (never a token), and the revocations.
var Bucket = &store.Bucket{Name: "auth", Class: store.Derived}

// The tables of the bucket, told apart by the first word of their keys.
var (
	kids        = store.NewTable(Bucket, store.String[kidID](), store.CBOR[kidRow]()).SummedLater()
	tokens      = store.NewTable(Bucket, store.String[tokenID](), store.CBOR[tokenRow]()).SummedLater()
	revocations = store.NewTable(Bucket, store.String[revID](), store.CBOR[revRow]()).SummedLater()
	expiries    = store.NewTable(Bucket, store.String[expiryID](), store.None())
	totals      = store.NewTable(Bucket, store.String[totalID](), store.CBOR[uint64]()).SummedLater()
	roots       = store.NewTable(Bucket, store.String[string](), store.CBOR[rootRow]()).SummedLater()
)

const (
	kidPrefix    = "kid/"
	tokenPrefix  = "tok/"
	revPrefix    = "rev/"
	expiryPrefix = "exp/"
	totalPrefix  = "sum/"
	rootKey      = "root"
	after        = "\xff" // sorts after every key of a prefix
)

// format is the layout of the bucket. Layout 2 has checksums after its rows, except those of
// expiries. A file without a root row has layout 1.
const format = 2

// rootRow describes the bucket.
type rootRow struct {
	Format uint64 `cbor:"1,keyasint"`
	Epoch  uint64 `cbor:"2,keyasint"` // the auth epoch of Secrets
	// check values of the node secrets of the epoch, the current one last
	Secrets []b3.Digest `cbor:"3,keyasint"`
}

// Bounds of the bucket.
const (
	maxKids        = 64      // keys that are not retired, which are kept in memory
	maxRetired     = 64      // retired keys, which are only listed
	maxTokens      = 100_000 // live token rows
	maxRevocations = 100_000 // beyond it, a new key replaces all others and invalidates their tokens
)

// kidID is the key of a token key: "kid/" and a ULID.
type kidID string

func (id kidID) kid() string { return strings.TrimPrefix(string(id), kidPrefix) }

// kidRow is one token key.
type kidRow struct {
	Salt        []byte `cbor:"1,keyasint"`
	State       string `cbor:"2,keyasint"`
	CreatedAt   int64  `cbor:"3,keyasint"`           // Unix ns
	LastExpiry  int64  `cbor:"4,keyasint,omitempty"` // Unix ns: when the last token it minted expires
	VerifyUntil int64  `cbor:"5,keyasint,omitempty"` // Unix ns: end of the overlap, 0 while active
}

// States of a token key.
const (
	kidActive  = "active"  // mints and verifies
	kidVerify  = "verify"  // verifies until its last token has expired
	kidRetired = "retired" // its tokens are invalid
)

// key converts the row to the type of package auth.
func (row kidRow) key(id kidID) auth.Key {
	k := auth.Key{
		Kid:       id.kid(),
		Salt:      row.Salt,
		State:     auth.KeyState(row.State),
		CreatedAt: time.Unix(0, row.CreatedAt),
	}
	if row.VerifyUntil != 0 {
		k.VerifyUntil = time.Unix(0, row.VerifyUntil)
	}
	return k
}

// tokenID is the key of a minted token: "tok/" and its id.
type tokenID string

// tokenRow is the record of a token.
type tokenRow struct {
	Kid       string   `cbor:"1,keyasint"`
	Sub       string   `cbor:"2,keyasint"`
	Tenant    string   `cbor:"3,keyasint,omitempty"`
	Scopes    []string `cbor:"4,keyasint"`
	Caveats   []string `cbor:"5,keyasint,omitempty"` // as minted, scope and expiry left out
	IssuedAt  int64    `cbor:"6,keyasint"`           // Unix s
	ExpiresAt int64    `cbor:"7,keyasint"`           // Unix s
	Epoch     uint64   `cbor:"8,keyasint"`
}

// revID is the key of a revocation: "rev/tid/…", "rev/kid/…", "rev/tenant/…" or "rev/epoch/…".
type revID string

func newRevID(what, value string) revID { return revID(revPrefix + what + "/" + value) }

func (id revID) parts() (what, value string) {
	what, value, _ = strings.Cut(strings.TrimPrefix(string(id), revPrefix), "/")
	return what, value
}

// revRow is one revocation.
type revRow struct {
	At     int64  `cbor:"1,keyasint"` // Unix ns
	Until  int64  `cbor:"2,keyasint"` // Unix ns: every covered token has expired
	Reason string `cbor:"3,keyasint,omitempty"`
}

// revocation converts the row to the type of package auth.
func (row revRow) revocation(id revID) auth.Revocation {
	what, value := id.parts()
	return auth.Revocation{
		What:   what,
		Value:  value,
		At:     time.Unix(0, row.At),
		Until:  time.Unix(0, row.Until),
		Reason: row.Reason,
	}
}

// expiryID orders rows by their expiry: "exp/" + 16 hex digits of Unix s + "/" + the key of the
// row.
type expiryID string

func expires(unix int64, key string) expiryID {
	return expiryID(fmt.Sprintf("%s%016x/%s", expiryPrefix, max(unix, 0), key))
}

// row returns the key of the row that expires.
func (id expiryID) row() string {
	_, key, _ := strings.Cut(strings.TrimPrefix(string(id), expiryPrefix), "/")
	return key
}

// totalID is the key of a row counter.
type totalID string

const (
	totalTokens      totalID = "sum/tokens"
	totalRevocations totalID = "sum/revocations"
)

func total(r store.Reader, id totalID) uint64 {
	n, _ := totals.Get(r, id)
	return n
}

// tokenKey is a key with its id.
type tokenKey struct {
	id kidID
	kidRow
}

// readKids lists every key, oldest first: their ids are ULIDs.
func readKids(r store.Reader) []tokenKey {
	var out []tokenKey
	for id, row := range kids.Range(r, kidPrefix, kidPrefix+after) {
		out = append(out, tokenKey{id, row})
	}
	return out
}

// readRevocations lists every revocation.
func readRevocations(r store.Reader) []auth.Revocation {
	var out []auth.Revocation
	for id, row := range revocations.Range(r, revPrefix, revPrefix+after) {
		out = append(out, row.revocation(id))
	}
	return out
}

// findKid returns the index of a key, or -1.
func findKid(all []tokenKey, id kidID) int {
	return slices.IndexFunc(all, func(k tokenKey) bool { return k.id == id })
}

// active returns the index of the key that mints, or -1.
func active(all []tokenKey) int {
	return slices.IndexFunc(all, func(k tokenKey) bool { return k.State == kidActive })
}

// authKeys converts keys to the type of package auth.
func authKeys(all []tokenKey) []auth.Key {
	out := make([]auth.Key, len(all))
	for i, k := range all {
		out[i] = k.key(k.id)
	}
	return out
}
