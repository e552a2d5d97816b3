package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-json-experiment/json"
)

// maxHello bounds the JSON of a Hello, bytes.
const maxHello = 4 << 10

// Entry formats of this program.
const (
	oldestFormat = 1
	newestFormat = 1
)

// MaxSkew is the largest difference of clocks at which a node may join and stand for election.
const MaxSkew = 500 * time.Millisecond

// Versions are the formats that a program can read and write.
type Versions struct {
	Formats [2]int `json:"formats"` // oldest and newest format of entries
	Schema  int    `json:"schema"`  // of the file
}

// ThisProgram returns the versions of this program, whose files have the schema.
func ThisProgram(schema int) Versions {
	return Versions{Formats: [2]int{oldestFormat, newestFormat}, Schema: schema}
}

// Judge returns a *RefusedError if nodes with the versions v and other cannot be in one cluster.
func (v Versions) Judge(other Versions) error {
	switch {
	case other.Formats[0] > v.Formats[1] || other.Formats[1] < v.Formats[0]:
		return &RefusedError{Reason: ReasonFormat, Detail: fmt.Sprintf(
			"its entries have formats %d to %d, those of this node %d to %d",
			other.Formats[0], other.Formats[1], v.Formats[0], v.Formats[1])}
	case other.Schema != v.Schema:
		return &RefusedError{Reason: ReasonSchema, Detail: fmt.Sprintf(
			"its files have schema %d, those of this node %d", other.Schema, v.Schema)}
	}
	return nil
}

// Hello is the first frame of a raft connection, each way: two bytes with the length, big-endian,
// and JSON of at most 4 KiB.
type Hello struct {
	Versions
	Cluster string        `json:"cluster"`
	Server  string        `json:"server"`
	Clock   int64         `json:"clock"`             // Unix ns, when the frame was sent
	Refused *RefusedError `json:"refused,omitempty"` // only from the accepting side, which then closes
}

// Reason is a reason to refuse a node.
type Reason string

// The reasons.
const (
	ReasonCluster Reason = "cluster" // it is of another cluster
	ReasonServer  Reason = "server"  // its id is not that of its certificate
	ReasonSelf    Reason = "self"    // it is the node itself: two have the same identity, or an address is wrong
	ReasonFormat  Reason = "format"  // no entry format in common
	ReasonSchema  Reason = "schema"  // another schema of the file
	ReasonClock   Reason = "clock"   // the clocks differ by more than MaxSkew
	ReasonMember  Reason = "member"  // it is not a member
)

// ErrRefused is the error of a node that refuses another one.
var ErrRefused = errors.New("peer: refused")

// RefusedError says why a node refuses another one. It is ErrRefused.
type RefusedError struct {
	Reason Reason `json:"reason"`
	Detail string `json:"detail"`
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%v (%.16s): %.512s", ErrRefused, e.Reason, e.Detail)
}

// Is reports whether target is ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// hello returns the Hello of the node.
func (i *Identity) hello() Hello {
	return Hello{Versions: i.speaks, Cluster: i.info.Cluster, Server: i.info.Server, Clock: i.now().UnixNano()}
}

// judge returns a *RefusedError if the node does not talk to the node that sent h and has the
// certificate of server.
func (i *Identity) judge(h Hello, server string) error {
	switch {
	case h.Cluster != i.info.Cluster:
		return &RefusedError{ReasonCluster, fmt.Sprintf(
			"it is of cluster %.32q, this one is %s", h.Cluster, i.info.Cluster)}
	case h.Server != server:
		return &RefusedError{ReasonServer, fmt.Sprintf(
			"it calls itself %.32q, its certificate is of %s", h.Server, server)}
	case server == i.info.Server:
		return &RefusedError{ReasonSelf, "both sides are node " + server}
	}
	return i.speaks.Judge(h.Versions)
}

func writeHello(w io.Writer, h Hello) error {
	text, err := json.Marshal(h)
	if err == nil && len(text) > maxHello {
		err = fmt.Errorf("it has %d bytes, at most %d", len(text), maxHello)
	}
	if err == nil {
		_, err = w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	}
	if err != nil {
		return fmt.Errorf("send hello: %w", err)
	}
	return nil
}

// readHello reads one frame and no byte after it.
func readHello(r io.Reader) (h Hello, err error) {
	var size [2]byte
	if _, err = io.ReadFull(r, size[:]); err != nil {
		return h, fmt.Errorf("read hello: %w", err)
	}
	n := binary.BigEndian.Uint16(size[:])
	if n > maxHello {
		return h, fmt.Errorf("read hello: it has %d bytes, at most %d", n, maxHello)
	}
	text := make([]byte, n)
	if _, err = io.ReadFull(r, text); err == nil {
		err = json.Unmarshal(text, &h) // members of newer programs are ignored
	}
	if err != nil {
		return h, fmt.Errorf("read hello: %w", err)
	}
	return h, nil
}

// Skew is the measured difference of two clocks: the other one is ahead by By, within ± Within.
type Skew struct {
	By, Within time.Duration
}

// Check returns a *RefusedError if the difference is larger than MaxSkew for certain.
func (s Skew) Check() error {
	if !s.Exceeds(MaxSkew) {
		return nil
	}
	return &RefusedError{ReasonClock, fmt.Sprintf(
		"the clock of the other node differs by %v, at most %v is allowed", s.By.Round(time.Millisecond), MaxSkew)}
}

// Exceeds reports whether the difference is larger than most for certain.
func (s Skew) Exceeds(most time.Duration) bool { return s.By.Abs()-s.Within > most }

// Counts reports whether the other clock was read recently enough to be compared.
func (s Skew) Counts() bool { return s.Within >= 0 && s.Within <= MaxSkew/2 }

// SkewOf returns the difference to a clock (Unix ns) that was read at some time between from and
// to.
func SkewOf(clock int64, from, to time.Time) Skew {
	half := to.Sub(from) / 2
	return Skew{By: time.Unix(0, clock).Sub(from.Add(half)), Within: half}
}

// greet sends the Hello of the dialling side and returns that of the other one.
func (i *Identity) greet(c net.Conn, server string) (Hello, Skew, error) {
	from := i.now()
	if err := writeHello(c, i.hello()); err != nil {
		return Hello{}, Skew{}, err
	}
	h, err := readHello(c)
	if err != nil {
		return h, Skew{}, err
	}
	if h.Refused != nil {
		return h, Skew{}, h.Refused
	}
	return h, SkewOf(h.Clock, from, i.now()), i.judge(h, server)
}

// answer reads the Hello of the dialling side, which began the connection at from, and answers it,
// with a refusal if there is a reason.
func (i *Identity) answer(c net.Conn, server string, from time.Time, member func(string) bool) (Hello, Skew, error) {
	h, err := readHello(c)
	if err != nil {
		return h, Skew{}, err
	}
	skew := SkewOf(h.Clock, from, i.now())
	err = i.judge(h, server)
	if err == nil && member != nil && !member(server) {
		err = &RefusedError{ReasonMember, "node " + server + " is not a member; remove its data and join again"}
	}
	mine := i.hello()
	mine.Refused, _ = errors.AsType[*RefusedError](err)
	return h, skew, errors.Join(err, writeHello(c, mine))
}
