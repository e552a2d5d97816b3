package name

import (
	"bytes"
	"crypto/ed25519"
	"time"

	"github.com/fxamacker/cbor/v2"

	"ronbox/appliance/b3"
	"ronbox/appliance/sig"
)

// Domains of the signatures.
const (
	providerDomain = "ronbox/provider/1\x00"
	nameDomain     = "ronbox/name/1\x00"
)

// Bounds of records.
const (
	MaxRecord = 2 << 10 // bytes, signature included
	minTTL    = time.Minute
	maxTTL    = 48 * time.Hour
	maxSkew   = 5 * time.Minute // time by which a record may be ahead of this node's clock
)

// DefaultTTL is the lifetime of a provider record if its publisher does not set one.
const DefaultTTL = 24 * time.Hour

// ProviderRecord states that a peer serves the content of an id at some addresses for some time.
// Its signed form is the signature, 64 bytes, followed by the canonical CBOR of the record.
type ProviderRecord struct {
	CID    b3.Digest `cbor:"1,keyasint"`
	Peer   PeerID    `cbor:"2,keyasint"` // id of the Ed25519 key that signs
	Addrs  []string  `cbor:"3,keyasint"` // 1 to 16 multiaddrs of at most 256 bytes
	Region string    `cbor:"4,keyasint,omitempty"`
	AtMS   int64     `cbor:"5,keyasint"` // time of signing, Unix ms
	TTLSec int64     `cbor:"6,keyasint"` // 60 to 172800
}

// NameRecord states the manifest of a key according to one node. Its signed form is that of a
// ProviderRecord.
type NameRecord struct {
	Key       Key       `cbor:"1,keyasint"`
	Manifest  b3.Digest `cbor:"2,keyasint"`
	Seq       uint64    `cbor:"3,keyasint"` // seq of the key at that node; grows with each write
	UpdatedMS int64     `cbor:"4,keyasint"`
	ExpiresMS int64     `cbor:"5,keyasint"`
}

// ExpiresMS returns the expiry of the record in Unix ms.
func (r *ProviderRecord) ExpiresMS() int64 { return r.AtMS + r.TTLSec*1000 }

// check returns the first fault of r at now.
func (r *ProviderRecord) check(now time.Time) error {
	if r.CID.IsZero() {
		return &RecordError{"cid", "must not be zero"}
	}
	if err := checkAddrs(r.Addrs); err != nil {
		return err
	}
	if err := CheckRegion(r.Region); err != nil {
		return err
	}
	if r.TTLSec < int64(minTTL/time.Second) || r.TTLSec > int64(maxTTL/time.Second) {
		return &RecordError{"ttl", "must be 1m..48h"}
	}
	if r.AtMS <= 0 || r.AtMS > now.Add(maxSkew).UnixMilli() {
		return &RecordError{"ts", "must not be more than 5m ahead of this node's clock"}
	}
	if r.ExpiresMS() <= now.UnixMilli() {
		return &RecordError{"ttl", "is over: the record has expired"}
	}
	return nil
}

// Sign sets r.Peer to the peer of the key and returns the signed form. It returns a *RecordError if
// r is invalid.
func (r *ProviderRecord) Sign(key ed25519.PrivateKey, now time.Time) ([]byte, error) {
	r.Peer = PeerIDOf(key.Public().(ed25519.PublicKey))
	if err := r.check(now); err != nil {
		return nil, err
	}
	return sealed(providerDomain, r, key)
}

// ParseProviderRecord verifies a signed record at now: form, bounds, time, and the signature by the
// key of its peer id. It returns a *RecordError if the record is invalid.
func ParseProviderRecord(raw []byte, now time.Time) (ProviderRecord, error) {
	var r ProviderRecord
	body, err := unsealed(raw, &r)
	if err != nil {
		return r, err
	}
	if err := r.check(now); err != nil {
		return r, err
	}
	key, ok := r.Peer.Key()
	if !ok || PeerIDOf(key) != r.Peer {
		return r, &RecordError{"peer", "must be the id of an Ed25519 key"}
	}
	return r, verify(providerDomain, raw, body, key)
}

// StoredProviderRecord returns a record that was verified before: it checks its form only.
func StoredProviderRecord(raw []byte) (r ProviderRecord, err error) {
	_, err = unsealed(raw, &r)
	return r, err
}

// SignedProviderRecord returns a record that was verified before: it checks form and signature, and
// neither dates nor bounds.
func SignedProviderRecord(raw []byte, signer ed25519.PublicKey) (r ProviderRecord, err error) {
	body, err := unsealed(raw, &r)
	if err != nil {
		return r, err
	}
	return r, verify(providerDomain, raw, body, signer)
}

// ProviderOf returns the provider of a verified record. A record dated after now, in Unix ms,
// counts as signed now, so that a fast clock does not raise its rank.
func ProviderOf(raw []byte, r *ProviderRecord, now int64) Provider {
	return Provider{
		Peer:      r.Peer,
		Addrs:     r.Addrs,
		Region:    r.Region,
		Verified:  true,
		AtMS:      min(r.AtMS, now),
		ExpiresMS: r.ExpiresMS(),
		Record:    raw,
	}
}

// Sign returns the signed form of r.
func (r *NameRecord) Sign(key ed25519.PrivateKey) ([]byte, error) { return sealed(nameDomain, r, key) }

// ParseNameRecord verifies a signed record of key at now under one of the trusted keys, and returns
// that key as the signer. It returns a *RecordError if the record is invalid.
func ParseNameRecord(
	raw []byte, key Key, trusted []ed25519.PublicKey, now time.Time,
) (r NameRecord, signer ed25519.PublicKey, err error) {
	body, err := unsealed(raw, &r)
	if err == nil {
		err = r.check(key, now)
	}
	if err != nil {
		return r, nil, err
	}
	for _, k := range trusted {
		if verify(nameDomain, raw, body, k) == nil {
			return r, k, nil
		}
	}
	return r, nil, &RecordError{"sig", "is by no key that is trusted for this name"}
}

// SignedNameRecord returns a record that was verified before: it checks form and signature, and not
// its dates.
func SignedNameRecord(raw []byte, signer ed25519.PublicKey) (r NameRecord, err error) {
	body, err := unsealed(raw, &r)
	if err != nil {
		return r, err
	}
	return r, verify(nameDomain, raw, body, signer)
}

// check returns the first fault of r as an answer for key at now.
func (r *NameRecord) check(key Key, now time.Time) error {
	switch {
	case r.Key != key:
		return &RecordError{"key", "is not the one that was asked for"}
	case r.Manifest.IsZero() || r.Seq == 0:
		return &RecordError{"manifest", "must not be zero"}
	case r.UpdatedMS > now.Add(maxSkew).UnixMilli():
		return &RecordError{"updated", "must not be more than 5m ahead of this node's clock"}
	case r.ExpiresMS <= now.UnixMilli():
		return &RecordError{"expires", "is over: the record has expired"}
	}
	return nil
}

var (
	encMode = mode(textual(cbor.CoreDetEncOptions()).EncMode())
	decMode = mode(cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		MaxArrayElements:  MaxAddrs,
		MaxMapPairs:       16,
		MaxNestedLevels:   4,
		TextUnmarshaler:   cbor.TextUnmarshalerTextString,
	}.DecMode())
)

// textual encodes keys and digests as text.
func textual(o cbor.EncOptions) cbor.EncOptions {
	o.TextMarshaler = cbor.TextMarshalerTextString
	return o
}

func mode[M any](m M, err error) M {
	if err != nil {
		panic("index: cbor: " + err.Error())
	}
	return m
}

// sealed returns the signed form of a record.
func sealed(domain string, record any, key ed25519.PrivateKey) ([]byte, error) {
	body, err := encMode.Marshal(record)
	if err != nil {
		return nil, &RecordError{"record", "does not encode: " + err.Error()}
	}
	raw := append(ed25519.Sign(key, append([]byte(domain), body...)), body...)
	if len(raw) > MaxRecord {
		return nil, &RecordError{"record", "must be at most 2 KiB"}
	}
	return raw, nil
}

// unsealed decodes the body of a signed form into record and returns its bytes. It accepts only
// canonical CBOR.
func unsealed(raw []byte, record any) (body []byte, err error) {
	if len(raw) <= ed25519.SignatureSize || len(raw) > MaxRecord {
		return nil, &RecordError{"record", "must be a signature and a record, at most 2 KiB"}
	}
	body = raw[ed25519.SignatureSize:]
	if err := decMode.Unmarshal(body, record); err != nil {
		return nil, &RecordError{"record", "is not the CBOR of one"}
	}
	again, err := encMode.Marshal(record)
	if err != nil || !bytes.Equal(again, body) {
		return nil, &RecordError{"record", "is not in canonical CBOR"}
	}
	return body, nil
}

// verify checks the signature of a signed form.
func verify(domain string, raw, body []byte, key ed25519.PublicKey) error {
	if err := sig.CheckKey(key); err != nil {
		return &RecordError{"peer", "key " + err.Error()}
	}
	if !ed25519.Verify(key, append([]byte(domain), body...), raw[:ed25519.SignatureSize]) {
		return &RecordError{"sig", "is not by the key of the record"}
	}
	return nil
}
