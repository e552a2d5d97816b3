package checkpoint

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/b3"
	"ronbox/appliance/sig"
)

// Signature types of C2SP.
const (
	algEd25519  = 1 // of a log
	algCosigned = 4 // cosignature/v1: with a time
)

// MaxNote is the most bytes of a note: a checkpoint with the cosignatures of some hundred
// witnesses.
const MaxNote = 64 << 10

// strict accepts only one spelling of bytes: decoders ignore spare bits in the last character of
// any other.
var strict = base64.StdEncoding.Strict()

// Errors of notes.
var (
	ErrForm   = errors.New("not a checkpoint")
	ErrSigner = errors.New("no log key that is trusted has signed it")
)

// Tree is the content of a checkpoint: the log of that origin has Size entries under Root.
type Tree struct {
	Origin string
	Size   uint64
	Root   tlog.Hash
}

// Text returns the signed text: three lines.
func (t Tree) Text() string {
	return t.Origin + "\n" + strconv.FormatUint(t.Size, 10) + "\n" + t.Root.String() + "\n"
}

// ParseText parses the text of a checkpoint in its one spelling. It refuses further lines.
func ParseText(text string) (Tree, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || lines[0] == "" || lines[3] != "" {
		return Tree{}, fmt.Errorf("%w: want three lines: origin, size, root", ErrForm)
	}
	size, err := strconv.ParseUint(lines[1], 10, 53)
	if err != nil || strconv.FormatUint(size, 10) != lines[1] {
		return Tree{}, fmt.Errorf("%w: size %.40q", ErrForm, lines[1])
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil || root.String() != lines[2] {
		return Tree{}, fmt.Errorf("%w: root %.80q", ErrForm, lines[2])
	}
	return Tree{Origin: lines[0], Size: size, Root: root}, nil
}

// TreeOf parses the tree of a note without a check of its signatures.
func TreeOf(note []byte) (Tree, error) {
	text, _, _ := strings.Cut(string(note), "\n\n")
	return ParseText(text + "\n")
}

// Signed is a checkpoint with its signatures. It is immutable.
type Signed struct {
	Tree
	Note []byte    // as it is served
	At   time.Time // of the cosignature of the node; zero without one
}

// Key is a log key. It prints as its public half only.
type Key struct {
	Name    string
	VKey    string // the public half, a C2SP vkey
	private ed25519.PrivateKey
	signer  note.Signer
}

// ReadKey reads the file of a log key, a line "PRIVATE+KEY+name+hash+base64". Only its owner may
// read the file.
func ReadKey(path string) (*Key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("log key %s: others may read it: chmod 600", path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	k, err := ParseKey(strings.TrimSuffix(string(raw), "\n"))
	if err != nil {
		return nil, fmt.Errorf("log key %s: %w", path, err)
	}
	return k, nil
}

// ParseKey parses the text of a private log key.
func ParseKey(skey string) (*Key, error) {
	signer, err := note.NewSigner(skey)
	if err != nil {
		return nil, errors.New("not a C2SP private key") // the cause might quote the key
	}
	const prefix, hash = "PRIVATE+KEY+", "+01234567+"
	raw, err := base64.StdEncoding.DecodeString(skey[len(prefix)+len(signer.Name())+len(hash):])
	if err != nil || len(raw) != 1+ed25519.SeedSize || raw[0] != algEd25519 {
		return nil, errors.New("not an Ed25519 private key")
	}
	private := ed25519.NewKeyFromSeed(raw[1:])
	vkey, err := note.NewEd25519VerifierKey(signer.Name(), private.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	return &Key{Name: signer.Name(), VKey: vkey, private: private, signer: signer}, nil
}

// String returns the public half.
func (k *Key) String() string { return "log key " + k.VKey }

// GoString is String, so that no verb of fmt prints the seed.
func (k *Key) GoString() string { return k.String() }

// Sign returns the checkpoint of t, signed as the log and, with the time at in seconds, as its own
// witness. The signature of the log has no time, so a repeated one is the same.
func (k *Key) Sign(t Tree, at time.Time) (Signed, error) {
	if t.Origin != k.Name {
		return Signed{}, fmt.Errorf("the log is %q, its key is for %q", t.Origin, k.Name)
	}
	raw, err := note.Sign(&note.Note{Text: t.Text()}, k.signer, cosigner{k, at})
	if err != nil {
		return Signed{}, fmt.Errorf("sign a checkpoint: %w", err)
	}
	return Signed{Tree: t, Note: raw, At: time.Unix(at.Unix(), 0).UTC()}, nil
}

// SignText signs another statement of the log. Its first line must not be the origin.
func (k *Key) SignText(text string) ([]byte, error) {
	if strings.HasPrefix(text, k.Name+"\n") {
		return nil, fmt.Errorf("%w: it would pass for a checkpoint", ErrForm)
	}
	return note.Sign(&note.Note{Text: text}, k.signer)
}

// cosigner signs with a time, by the key of the log.
type cosigner struct {
	k  *Key
	at time.Time
}

func (c cosigner) Name() string { return c.k.Name }
func (c cosigner) KeyHash() uint32 {
	return keyHash(c.k.Name, algCosigned, c.k.private.Public().(ed25519.PublicKey))
}

func (c cosigner) Sign(msg []byte) ([]byte, error) {
	at := uint64(c.at.Unix())
	sig := ed25519.Sign(c.k.private, cosigned(at, msg))
	return append(binary.BigEndian.AppendUint64(nil, at), sig...), nil
}

// cosigned returns the message that a cosignature/v1 signs.
func cosigned(at uint64, msg []byte) []byte {
	return append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", at), msg...)
}

func keyHash(name string, alg byte, public ed25519.PublicKey) uint32 {
	h := sha256.New()
	h.Write([]byte(name))
	h.Write([]byte{'\n', alg})
	h.Write(public)
	return binary.BigEndian.Uint32(h.Sum(nil))
}

// Witness verifies the cosignatures of one key; it is a note.Verifier.
type Witness struct {
	name   string
	public ed25519.PublicKey
}

// ParseWitness parses the vkey of a witness, of the type for cosignatures.
func ParseWitness(vkey string) (Witness, error) {
	name, rest, _ := strings.Cut(vkey, "+")
	hash, key64, ok := strings.Cut(rest, "+")
	raw, err := strict.DecodeString(key64)
	if !ok || err != nil || name == "" || len(raw) != 1+ed25519.PublicKeySize || raw[0] != algCosigned {
		return Witness{}, fmt.Errorf("%.120q is not the verifier key of a witness", vkey)
	}
	w := Witness{name: name, public: raw[1:]}
	if err := sig.CheckKey(w.public); err != nil {
		return Witness{}, fmt.Errorf("key of witness %s: %w", name, err)
	}
	if fmt.Sprintf("%08x", w.KeyHash()) != hash {
		return Witness{}, fmt.Errorf("key of witness %s: its hash is %08x, not %.20s", name, w.KeyHash(), hash)
	}
	return w, nil
}

// Name returns the name of the witness.
func (w Witness) Name() string { return w.name }

// KeyHash returns the hash of its key for cosignatures.
func (w Witness) KeyHash() uint32 { return keyHash(w.name, algCosigned, w.public) }

// Verify checks a cosignature of msg.
func (w Witness) Verify(msg, sig []byte) bool {
	return len(sig) == 8+ed25519.SignatureSize &&
		ed25519.Verify(w.public, cosigned(binary.BigEndian.Uint64(sig), msg), sig[8:])
}

// Keys are the public log keys of a signer set, ready to verify.
type Keys struct {
	logs  []note.Verifier
	byKey map[uint32]Witness // their cosignatures
}

// ParseLogKey parses the vkey of a log, of the Ed25519 type and in its one spelling. The point is
// checked as that of a signer is.
func ParseLogKey(vkey string) (note.Verifier, ed25519.PublicKey, error) {
	v, err := note.NewVerifier(vkey)
	if err != nil {
		return nil, nil, errors.New("is not a C2SP verifier key")
	}
	raw, err := strict.DecodeString(vkey[len(v.Name())+len("+01234567+"):])
	switch {
	case err != nil || len(raw) != 1+ed25519.PublicKeySize || raw[0] != algEd25519:
		return nil, nil, errors.New("is not an Ed25519 verifier key")
	case fmt.Sprintf("%s+%08x+%s", v.Name(), v.KeyHash(), base64.StdEncoding.EncodeToString(raw)) != vkey:
		return nil, nil, errors.New("is not in its one spelling")
	}
	return v, raw[1:], sig.CheckKey(raw[1:])
}

// NewKeys parses vkeys. An invalid one is an error, because signer sets are checked before they
// come into force.
func NewKeys(vkeys []string) (Keys, error) {
	keys := Keys{byKey: map[uint32]Witness{}}
	for i, vkey := range vkeys {
		if slices.Contains(vkeys[:i], vkey) {
			continue // it stands in more than one set, and a note takes two for ambiguous
		}
		v, public, err := ParseLogKey(vkey)
		if err != nil {
			return Keys{}, fmt.Errorf("log key %.120q %w", vkey, err)
		}
		w := Witness{name: v.Name(), public: public}
		keys.logs = append(keys.logs, v)
		keys.byKey[w.KeyHash()] = w
	}
	return keys, nil
}

// Open parses a signed checkpoint. One of the keys must have signed it as the log, under the origin
// in the text.
func (k Keys) Open(raw []byte) (Signed, error) {
	text, at, err := k.open(raw)
	if err != nil {
		return Signed{}, err
	}
	t, err := ParseText(text.Text)
	if err != nil {
		return Signed{}, err
	}
	for _, s := range text.Sigs {
		if s.Name == t.Origin {
			return Signed{Tree: t, Note: raw, At: at}, nil
		}
	}
	return Signed{}, fmt.Errorf("%w: it is of the log %q", ErrSigner, t.Origin)
}

// OpenText parses another statement that one of the keys has signed.
func (k Keys) OpenText(raw []byte) (string, error) {
	n, _, err := k.open(raw)
	if err != nil {
		return "", err
	}
	return n.Text, nil
}

// open verifies the signature of the log only. The cosignature of the node adds the time, not a
// second opinion.
func (k Keys) open(raw []byte) (n *note.Note, at time.Time, err error) {
	if len(raw) > MaxNote {
		return nil, at, fmt.Errorf("%w: a note of %d bytes, at most %d", ErrForm, len(raw), MaxNote)
	}
	n, err = note.Open(raw, note.VerifierList(k.logs...))
	if e, unsigned := errors.AsType[*note.UnverifiedNoteError](err); unsigned {
		return nil, at, fmt.Errorf("%w, but %d keys that are not", ErrSigner, len(e.Note.UnverifiedSigs))
	}
	if err != nil {
		return nil, at, fmt.Errorf("%w: %w", ErrForm, err)
	}
	for _, s := range n.Sigs {
		if _, err := strict.DecodeString(s.Base64); err != nil {
			return nil, at, fmt.Errorf("%w: signature of %s: %w", ErrForm, s.Name, err)
		}
	}
	for _, s := range n.UnverifiedSigs {
		w, own := k.byKey[s.Hash]
		sig, err := strict.DecodeString(s.Base64)
		if own && err == nil && len(sig) > 4 && s.Name == w.name && w.Verify([]byte(n.Text), sig[4:]) {
			at = time.Unix(int64(binary.BigEndian.Uint64(sig[4:])), 0).UTC()
		}
	}
	return n, at, nil
}

// Retention is the statement that a node signs before it deletes a part of its log: the checkpoint
// that covers that part, and the first complete version after it. It is a separate note, so that
// the checkpoint stays in a form that witnesses know.
type Retention struct {
	Tree                // an archived checkpoint over the deleted versions
	Head      b3.Digest // of the entry of version Size
	Min       uint64    // the first complete version
	ItemsRoot string    // as signed in the payload of version Min
	Snapshot  b3.Digest // of the items of version Min, as record.Snapshot writes them
}

// The lines of a statement: its type, and its members.
const (
	retentionTitle = "/retention\n"
	retentionSays  = "size %d\nroot %s\nhead %s\nmin %d\nsnapshot %d %s %s\n"
)

// Text returns the bytes to sign.
func (r Retention) Text() string {
	return r.Origin + retentionTitle + fmt.Sprintf(retentionSays, r.Size, r.Root, r.Head, r.Min, r.Min, r.ItemsRoot,
		r.Snapshot)
}

// ParseRetention parses the text of a statement in its one spelling.
func ParseRetention(text string) (r Retention, err error) {
	origin, says, ok := strings.Cut(text, retentionTitle)
	var root, head, snapshot string
	var at uint64
	if ok {
		_, err = fmt.Sscanf(says, retentionSays, &r.Size, &root, &head, &r.Min, &at, &r.ItemsRoot, &snapshot)
	}
	r.Origin = origin
	if err == nil {
		r.Root, err = tlog.ParseHash(root)
	}
	if err == nil {
		r.Head, err = b3.Parse(head)
	}
	if err == nil {
		r.Snapshot, err = b3.Parse(snapshot)
	}
	if err != nil || !ok || r.Text() != text {
		return Retention{}, fmt.Errorf("%w: no statement of retention (%v)", ErrForm, err)
	}
	return r, nil
}
