package registry

import (
	"encoding/binary"
	"fmt"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// propRow is what reg/prop says of a proposal, ahead of its packed payload.
type propRow struct {
	Version   uint64    `cbor:"1,keyasint"`
	PayloadB3 b3.Digest `cbor:"2,keyasint"`
	PrevHash  b3.Digest `cbor:"3,keyasint"`
	Owner     string    `cbor:"4,keyasint"` // who may withdraw it
	CreatedMS int64     `cbor:"5,keyasint"`
	ExpiresMS int64     `cbor:"6,keyasint"`
	Bytes     int64     `cbor:"7,keyasint"` // of the canonical payload
}

// doneRow is reg/done: how a proposal ended.
type doneRow struct {
	State       string    `cbor:"1,keyasint"`
	Version     uint64    `cbor:"2,keyasint"`
	PayloadB3   b3.Digest `cbor:"3,keyasint"`
	AtMS        int64     `cbor:"4,keyasint"`
	CommittedAt string    `cbor:"5,keyasint,omitempty"` // committed only, as Hash
	Hash        b3.Digest `cbor:"6,keyasint"`
}

// replay is the answer of the call that did the work, given again.
func (d doneRow) replay() Committed {
	return Committed{Version: d.Version, PayloadB3: d.PayloadB3, CommittedAt: d.CommittedAt, Hash: d.Hash, Replayed: true}
}

// storedProp is a reg/prop value: u16 length of the row, the row, the packed payload.
type storedProp struct {
	row    propRow
	packed []byte
}

func propValue() store.Value[storedProp] {
	rows := store.CBOR[propRow]()
	return store.Value[storedProp]{
		Encode: func(p storedProp) ([]byte, error) {
			head, err := rows.Encode(p.row)
			if err != nil {
				return nil, err
			}
			out := make([]byte, 0, 2+len(head)+len(p.packed))
			out = binary.BigEndian.AppendUint16(out, uint16(len(head)))
			return append(append(out, head...), p.packed...), nil
		},
		Decode: func(b []byte) (p storedProp, err error) {
			if len(b) < 2 || len(b) < 2+int(binary.BigEndian.Uint16(b)) {
				return p, errLength
			}
			n := 2 + int(binary.BigEndian.Uint16(b))
			p.packed = append([]byte(nil), b[n:]...)
			p.row, err = rows.Decode(b[2:n])
			return p, err
		},
	}
}

// epochSet is a reg/epoch value: the version that installed the signer set, and the set's canonical bytes.
type epochSet struct {
	version uint64
	set     []byte
}

func epochValue() store.Value[epochSet] {
	u64 := store.U64()
	return store.Value[epochSet]{
		Encode: func(e epochSet) ([]byte, error) { return append(u64.Append(nil, e.version), e.set...), nil },
		Decode: func(b []byte) (e epochSet, err error) {
			if len(b) < 8 {
				return e, errLength
			}
			e.set = append([]byte(nil), b[8:]...)
			e.version, err = u64.Decode(b[:8])
			return e, err
		},
	}
}

// idPrefix opens the text form of a proposal id.
const idPrefix = "p_"

func idText(id ulid.ULID) string { return idPrefix + id.String() }

// parseID reads a proposal id. What is not one names no proposal: ErrNotFound.
func parseID(s string) (ulid.ULID, error) {
	if len(s) == len(idPrefix)+ulid.EncodedSize && s[:len(idPrefix)] == idPrefix {
		if id, err := ulid.ParseStrict(s[len(idPrefix):]); err == nil && idText(id) == s {
			return id, nil
		}
	}
	return ulid.ULID{}, fmt.Errorf("proposal %.40q: %w", s, ErrNotFound)
}
