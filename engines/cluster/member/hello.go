package member

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"ronbox/appliance/peer"
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
	Ends      int64      `json:"ends,omitempty"`  // of its certificate, Unix s; 0: of an older release
}

// HelloAnswer is the answer of the leader.
type HelloAnswer struct {
	peer.Versions
	Server  string     `json:"server"`
	URL     string     `json:"url"`
	Clock   int64      `json:"clock"`
	Members []string   `json:"members"` // addresses of peer ports
	Keys    KeyDigests `json:"keys,omitempty"`
	// Unreached says why this leader does not reach the node at the address that it has told; "":
	// it does, or that is not new.
	Unreached string `json:"unreached,omitempty"`
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
// twice. The first one is a question, which the leader answers at once: that measures its clock.
// The second one measures the clock of this node for the leader. now is that clock; it sets h.Clock
// and h.Echo.
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
		told, err := say(addr, first.Clock)
		told.Skew = first.Skew
		return told, err
	})
}

// reachWithin bounds the dial of a new address.
const reachWithin = time.Second

// move changes the address of a member that has told another one, once this node has reached it
// there. It returns why it does not, or "".
func (s *Server) move(r *http.Request, server, to string) string {
	from := s.d.Cluster.Address(server)
	if from == "" || from == to {
		return ""
	}
	err := peer.CheckAddress(to)
	if err == nil {
		err = s.reaches(r, to)
	}
	if err == nil {
		err = s.meets(r.Context(), server, to)
	}
	if err == nil {
		err = s.d.Cluster.Admit(r.Context(), server, to, false)
	}
	if err != nil {
		return err.Error()
	}
	s.d.Log.Info("address_changed", "peer", server, "from", from, "to", to)
	s.d.Note(r.Context(), "cluster.address", map[string]string{"server": server, "from": from, "to": to})
	return ""
}

// meets returns an error unless a node answers at an address.
func (s *Server) meets(ctx context.Context, server, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	c, err := s.d.Identity.Dial(ctx, addr, peer.ProtoPeer)
	if err != nil {
		return err
	}
	got := c.(*peer.Conn).Server()
	if err = c.Close(); err == nil && got != server {
		err = fmt.Errorf("node %s answers at %s", got, addr)
	}
	return err
}

// dateWatch records the ends of the certificates of other members, while this node leads.
type dateWatch struct {
	mu   sync.Mutex           // a leaf
	ends map[string]time.Time // by member; guarded by mu
}

// noteRotated appends an audit row if the certificate of a member ends at another time than at its
// last hello.
func (s *Server) noteRotated(ctx context.Context, server string, ends time.Time) {
	s.dates.mu.Lock()
	before := s.dates.ends[server]
	if s.dates.ends == nil {
		s.dates.ends = map[string]time.Time{}
	}
	s.dates.ends[server] = ends
	s.dates.mu.Unlock()
	if !before.IsZero() && !ends.IsZero() && !before.Equal(ends) {
		s.d.Note(ctx, EventRotated, RotatedDetail(server, ends))
	}
}

// EventRotated is the event of the audit row about the new certificate of a member.
const EventRotated = "cluster.rotated"

// RotatedDetail returns the detail of that row.
func RotatedDetail(server string, ends time.Time) map[string]string {
	return map[string]string{"server": server, "certificate_ends": ends.UTC().Format(time.RFC3339)}
}
