package member

import (
	"context"
	"net/http"
	"time"

	"ronbox/engines/cluster/peer"
)

// Hello is the body of POST /hello, which every node sends to the leader.
type Hello struct {
	peer.Versions
	Advertise string     `json:"advertise"`
	URL       string     `json:"url"`            // of the public port
	Clock     int64      `json:"clock"`          // Unix ns
	Echo      int64      `json:"echo,omitempty"` // Clock of the answer just before; 0: none
	Join      bool       `json:"join"`           // the node has its file and asks to be admitted
	Keys      KeyDigests `json:"keys,omitempty"`
	Unfit     string     `json:"unfit,omitempty"` // why the node should not lead
	Ends      int64      `json:"ends,omitempty"`  // of its certificate, Unix s
}

// HelloAnswer is the answer of the leader.
type HelloAnswer struct {
	peer.Versions
	Server  string     `json:"server"`
	URL     string     `json:"url"`
	Clock   int64      `json:"clock"`
	Members []string   `json:"members"` // addresses of peer ports
	Keys    KeyDigests `json:"keys,omitempty"`
	// Clocks holds the clocks of other members against that of the leader.
	Clocks map[string]Clock `json:"clocks,omitempty"`
	// URLs holds the URLs of the public ports of members, as far as they are known.
	URLs map[string]string `json:"urls,omitempty"`
}

// Stand is the answer to POST /stand. Members answer it whether a leader is known or not.
type Stand struct {
	Unfit   string `json:"unfit"`   // why the member should not lead, "" if it may
	Applied uint64 `json:"applied"` // index of the last entry in its file
	Clock   int64  `json:"clock"`   // Unix ns
	Leader  string `json:"leader"`  // id, "" if it knows none
	URL     string `json:"url"`     // of its public port
}

// AskStand asks one member how it stands.
func AskStand(ctx context.Context, c *http.Client, addr string) (Stand, error) {
	return callOne[Stand](ctx, c, addr, PathStand, struct{}{})
}

// Clock is a reading of the clock of a node by another one.
type Clock struct {
	Ahead int64 `json:"ahead"` // ns, of the clock of the other one
	Age   int64 `json:"age"`   // ns, of the reading
}

// Word holds the content of the last hello of another member.
type Word struct {
	URL   string    // of its public port; "": as before
	Unfit string    // why it should not lead, "" if it may
	Ends  time.Time // of its certificate
}

// Greeting is the answer of the leader to a hello, with its clock against that of this node.
type Greeting struct {
	HelloAnswer
	Skew peer.Skew
}

// SayHello sends a hello to the leader, by way of the first of addrs that answers. It sends it
// twice: between its answer to the first one and the second one the leader reads the clock of this
// node, as this node reads that of the leader. now is that clock; it sets h.Clock and h.Echo.
func SayHello(
	ctx context.Context,
	c *http.Client,
	addrs []string,
	now func() time.Time,
	h Hello,
) (Greeting, error) {
	say := func(addr string, echo int64) (Greeting, error) {
		from := now()
		h.Clock, h.Echo = from.UnixNano(), echo
		answer, err := callOne[HelloAnswer](ctx, c, addr, PathHello, h)
		return Greeting{answer, peer.SkewOf(answer.Clock, from, now())}, err
	}
	return askAny(ctx, addrs, func(addr string) (Greeting, error) {
		first, err := say(addr, 0)
		if leader, ok := leaderIn(err); ok {
			addr = leader
			first, err = say(addr, 0)
		}
		if err != nil {
			return first, err
		}
		return say(addr, first.Clock)
	})
}
