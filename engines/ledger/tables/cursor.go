package tables

import (
	"encoding/base64"
	"encoding/binary"
	"errors"

	"ronbox/appliance/b3"
)

// ErrCursor says that a text is not a cursor of this history: of another account, asset or order, or of no ledger like this one.
var ErrCursor = errors.New("cursor does not belong to this query: begin without one")

// cursor says where a page begins: at which posting, and for one that runs backwards in which record it is.
type cursor struct{ posting, seq uint64 }

// cursorSize: version, posting, seq, seal.
const cursorSize = 1 + 8 + 8 + sealSize

// sealSize bytes of hash tie a cursor to its history. They keep a client from asking for nonsense; what it may read is judged elsewhere.
const sealSize = 8

const cursorVersion = 1

// cursorSeals sets a cursor's seal apart from every other digest.
var cursorSeals = b3.Derive("ronbox ledger cursor v1")

// cursors writes and reads the cursors of one history.
type cursors struct {
	key    StoreKey
	of     StateKey
	oldest bool // the order
}

func (c cursors) text(at cursor) string {
	b := binary.BigEndian.AppendUint64([]byte{cursorVersion}, at.posting)
	b = binary.BigEndian.AppendUint64(b, at.seq)
	return base64.RawURLEncoding.EncodeToString(append(b, c.seal(b)...))
}

func (c cursors) parse(s string) (cursor, error) {
	if len(s) != base64.RawURLEncoding.EncodedLen(cursorSize) {
		return cursor{}, ErrCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || b[0] != cursorVersion || string(c.seal(b[:cursorSize-sealSize])) != string(b[cursorSize-sealSize:]) {
		return cursor{}, ErrCursor
	}
	return cursor{binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:])}, nil
}

func (c cursors) seal(b []byte) []byte {
	order := byte('n')
	if c.oldest {
		order = 'o'
	}
	sum := cursorSeals.Sum(c.key[:], stateKeys().Append(nil, c.of), []byte{order}, b)
	return sum[:sealSize]
}
