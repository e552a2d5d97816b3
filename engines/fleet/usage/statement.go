package usage

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines/canon"
)

// Format names the form of a statement.
const Format = "ronbox.usage/1"

// domain precedes the signed bytes, because the key also signs records of the index.
const domain = Format + "\n"

// Bounds of a statement.
const (
	// MaxNodes is the number of rows. A fleet of more nodes is not counted whole.
	MaxNodes = 1000
	// MaxBytes bounds the bytes that the rows attest together. A line of 100 Gbit/s carries less in
	// 8 days, and the sum over 1000 nodes fits into an int64.
	MaxBytes = 1 << 53
	// MaxSize bounds a signed statement, in bytes: a row has at most 160.
	MaxSize = 192 << 10
)

// Statement is the claim of a node about the bytes that it received in an epoch.
type Statement struct {
	Genesis     b3.Digest // of the registry that names the nodes
	Node        string    // item of the node that received, as "node/a"
	Identity    string    // peer id of the key that signs
	Incarnation string    // of the node's file
	Epoch       uint64    // number: Unix seconds / Length
	Length      time.Duration
	Head        uint64 // version of the registry that the node had
	Rows        []Row  // sorted by node
}

// Row counts what was received from one node: bytes of objects that were asked for, bytes of placed
// objects, and objects of both.
type Row struct {
	Node    string
	Asked   uint64
	Placed  uint64
	Objects uint64
}

// Bytes returns the bytes of both kinds.
func (r Row) Bytes() uint64 { return r.Asked + r.Placed }

// EpochOf returns the number of the epoch that contains t. Both t and length are whole seconds.
func EpochOf(t time.Time, length time.Duration) uint64 {
	return uint64(max(0, t.Unix()) / int64(length/time.Second))
}

// Window returns when an epoch starts and ends.
func Window(epoch uint64, length time.Duration) (start, end time.Time) {
	seconds := int64(length / time.Second)
	return time.Unix(int64(epoch)*seconds, 0).UTC(), time.Unix(int64(epoch+1)*seconds, 0).UTC()
}

// MaxEpoch bounds the number of an epoch, so that its end is a time.
const MaxEpoch = 1 << 33

// Grace returns the time between the end of an epoch and its statement.
func Grace(length time.Duration) time.Duration { return min(5*time.Minute, length/4) }

// Sign returns the statement with its signature. The rows must be sorted by node.
func (s *Statement) Sign(key ed25519.PrivateKey) []byte {
	doc := s.object()
	sig := ed25519.Sign(key, append([]byte(domain), canon.Append(nil, doc)...))
	doc["signature"] = base64.StdEncoding.EncodeToString(sig)
	return canon.Append(nil, doc)
}

// object returns the members that are signed.
func (s *Statement) object() canon.Object {
	rows := canon.Object{}
	for _, r := range s.Rows {
		rows[r.Node] = canon.Object{"asked": r.Asked, "objects": r.Objects, "placed": r.Placed}
	}
	start, end := Window(s.Epoch, s.Length)
	return canon.Object{
		"format":      Format,
		"genesis":     s.Genesis,
		"node":        s.Node,
		"identity":    s.Identity,
		"incarnation": s.Incarnation,
		"epoch":       s.Epoch,
		"length":      int64(s.Length / time.Second),
		"head":        s.Head,
		"start":       start.Format(time.RFC3339),
		"end":         end.Format(time.RFC3339),
		"rows":        rows,
	}
}

// Document is the JSON of a signed statement. Numbers are decimal strings, as in all documents that
// are hashed or signed.
type Document struct {
	Format      string                 `json:"format"`
	Genesis     string                 `json:"genesis"`
	Node        string                 `json:"node"`
	Identity    string                 `json:"identity"`
	Incarnation string                 `json:"incarnation"`
	Epoch       string                 `json:"epoch"`
	Length      string                 `json:"length"`
	Head        string                 `json:"head"`
	Start       string                 `json:"start" format:"time"`
	End         string                 `json:"end" format:"time"`
	Rows        map[string]DocumentRow `json:"rows"`
	Signature   string                 `json:"signature"`
}

// DocumentRow is the JSON of a Row, whose node is its name.
type DocumentRow struct {
	Asked   string `json:"asked"`
	Placed  string `json:"placed"`
	Objects string `json:"objects"`
}

// errSignature is returned for a statement that the key has not signed.
var errSignature = errors.New("the signature is not by the key of the node")

// Open parses a signed statement and verifies that key has signed it. It does not verify that the
// statement is the one that the caller wants: see [Want].
func Open(raw []byte, key ed25519.PublicKey) (s Statement, err error) {
	s, sig, err := parse(raw)
	if err != nil {
		return s, fmt.Errorf("statement: %w", err)
	}
	if len(key) != ed25519.PublicKeySize ||
		!ed25519.Verify(key, append([]byte(domain), canon.Append(nil, s.object())...), sig) {
		return s, fmt.Errorf("statement: %w", errSignature)
	}
	return s, nil
}

// Parse parses a signed statement without verifying the signature.
func Parse(raw []byte) (Statement, error) {
	s, _, err := parse(raw)
	return s, err
}

func parse(raw []byte) (s Statement, sig []byte, err error) {
	if len(raw) > MaxSize {
		return s, nil, fmt.Errorf("has %d bytes, at most %d", len(raw), MaxSize)
	}
	var d Document
	if err := json.Unmarshal(raw, &d, json.RejectUnknownMembers(true)); err != nil {
		return s, nil, fmt.Errorf("is not JSON of the form %s: %w", Format, err)
	}
	if d.Format != Format {
		return s, nil, fmt.Errorf("format: must be %s", Format)
	}
	if s, err = d.statement(); err != nil {
		return s, nil, err
	}
	sig, err = base64.StdEncoding.Strict().DecodeString(d.Signature)
	if err != nil || len(sig) != ed25519.SignatureSize {
		return s, nil, errors.New("signature: must be the base64 of an Ed25519 signature")
	}
	doc := s.object()
	doc["signature"] = d.Signature
	if !bytes.Equal(raw, canon.Append(nil, doc)) {
		return s, nil, errors.New("is not in its canonical spelling")
	}
	return s, sig, nil
}

// statement converts the texts of a document.
func (d *Document) statement() (s Statement, err error) {
	number := func(name, text string, most uint64) uint64 {
		n, bad := canon.ParseNumber(text)
		if bad == nil && n > most {
			bad = fmt.Errorf("must be at most %d", most)
		}
		if bad != nil && err == nil {
			err = fmt.Errorf("%s: %w", name, bad)
		}
		return n
	}
	text := func(name, s string) string {
		plain := strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e }) < 0
		if (s == "" || len(s) > 128 || !plain) && err == nil {
			err = fmt.Errorf("%s: must be 1 to 128 printable ASCII bytes", name)
		}
		return s
	}
	s = Statement{
		Node:        text("node", d.Node),
		Identity:    text("identity", d.Identity),
		Incarnation: text("incarnation", d.Incarnation),
		Epoch:       number("epoch", d.Epoch, MaxEpoch),
		Head:        number("head", d.Head, 1<<63),
	}
	const year = 366 * 24 * 3600
	length := number("length", d.Length, year)
	if length == 0 && err == nil {
		err = errors.New("length: must be at least 1 second")
	}
	s.Length = time.Duration(length) * time.Second
	genesis, bad := b3.Parse(d.Genesis)
	if bad != nil && err == nil {
		err = fmt.Errorf("genesis: %w", bad)
	}
	s.Genesis = genesis
	if len(d.Rows) > MaxNodes && err == nil {
		err = fmt.Errorf("rows: %d nodes, at most %d", len(d.Rows), MaxNodes)
	}
	sum := uint64(0)
	for node, r := range d.Rows {
		one := Row{
			Node:    text("rows", node),
			Asked:   number("asked", r.Asked, MaxBytes),
			Placed:  number("placed", r.Placed, MaxBytes),
			Objects: number("objects", r.Objects, MaxBytes),
		}
		if sum += one.Bytes(); sum > MaxBytes && err == nil {
			err = fmt.Errorf("rows: attest more than %d bytes", uint64(MaxBytes))
		}
		s.Rows = append(s.Rows, one)
	}
	slices.SortFunc(s.Rows, func(a, b Row) int { return strings.Compare(a.Node, b.Node) })
	return s, err
}

// Want describes the statement that a caller asked for.
type Want struct {
	Genesis  b3.Digest
	Node     string
	Identity string
	Epoch    uint64
	Length   time.Duration
}

// Check returns an error that names the first member in which s differs from want.
func (s *Statement) Check(want Want) error {
	for _, m := range []struct{ name, has, want string }{
		{"genesis", s.Genesis.String(), want.Genesis.String()},
		{"node", s.Node, want.Node},
		{"identity", s.Identity, want.Identity},
		{"epoch", strconv.FormatUint(s.Epoch, 10), strconv.FormatUint(want.Epoch, 10)},
		{"length", s.Length.String(), want.Length.String()},
	} {
		if m.has != m.want {
			return fmt.Errorf("%s: is %s, not %s", m.name, m.has, m.want)
		}
	}
	return nil
}
