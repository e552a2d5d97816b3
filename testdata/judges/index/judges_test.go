// Package index holds ronbox's Delegated Routing against boxo's client and server, which IPFS nodes use.
package index

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipfs/boxo/ipns"
	"github.com/ipfs/boxo/routing/http/client"
	"github.com/ipfs/boxo/routing/http/server"
	"github.com/ipfs/boxo/routing/http/types"
	"github.com/ipfs/boxo/routing/http/types/iter"
	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multihash"
)

// patience bounds every wait for something that takes milliseconds.
const patience = time.Minute

// binary is built once, as `make build` compiles it.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rj")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "ronbox")
	build := exec.Command("go", "build", "-C", "../../..", "-o", binary, "./cmd/ronbox")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// node is a ronbox that runs.
type node struct{ dir, url string }

func startNode(t *testing.T, settings ...string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "rj")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{dir: filepath.Join(dir, "d")}
	n.run(t, "init", "--dev", "-q")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.url = "http://" + l.Addr().String()
	_ = l.Close()
	serve := exec.Command(binary, "--data-dir", n.dir, "serve")
	serve.Env = append(os.Environ(), append(settings, "RONBOX_LOG__LEVEL=warn", "RONBOX_SERVER__BIND="+l.Addr().String())...)
	serve.Stderr = os.Stderr
	serve.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Process.Signal(syscall.SIGTERM); _ = serve.Wait() })
	for late := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(n.url + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			return n
		}
		if time.Now().After(late) {
			t.Fatalf("%s is not ready: %v", n.url, err)
		}
	}
}

func (n *node) run(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, append([]string{"--data-dir", n.dir}, args...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("ronbox %v: %v\n%s%s", args, err, out, exit.Stderr)
	}
	return out
}

// contentOf is a CID of the kind that ronbox knows: BLAKE3, raw.
func contentOf(t *testing.T, b byte) cid.Cid {
	t.Helper()
	mh, err := multihash.Encode([]byte(strings.Repeat(string(rune('a'+b)), 32)), multihash.BLAKE3)
	if err != nil {
		t.Fatal(err)
	}
	return cid.NewCidV1(cid.Raw, mh)
}

func collect(t *testing.T, c *client.Client, of cid.Cid) (out []*types.PeerRecord) {
	t.Helper()
	it, err := c.FindProviders(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = it.Close() }()
	for it.Next() {
		v := it.Val()
		if v.Err != nil {
			t.Fatal(v.Err)
		}
		r, ok := v.Val.(*types.PeerRecord)
		if !ok {
			t.Fatalf("a record of schema %s", v.Val.GetSchema())
		}
		out = append(out, r)
	}
	return out
}

// boxo's client reads what ronbox serves, as lines and as one document.
func TestClientOfBoxo(t *testing.T) {
	n := startNode(t)
	content, addr := contentOf(t, 0), "/ip4/192.0.2.7/tcp/4001"
	n.run(t, "index", "announce", content.String(), "--addr", addr, "-q")
	var self struct{ Peer string }
	if err := json.Unmarshal(n.run(t, "index", "identity", "--json"), &self); err != nil {
		t.Fatal(err)
	}
	for _, stream := range []bool{true, false} {
		opts := []client.Option{client.WithProtocolFilter(nil)}
		if !stream {
			opts = append(opts, client.WithHTTPClient(jsonOnly{}))
		} else {
			opts = append(opts, client.WithStreamResultsRequired())
		}
		c, err := client.New(n.url, opts...)
		if err != nil {
			t.Fatal(err)
		}
		got := collect(t, c, content)
		if len(got) != 1 || got[0].ID.String() != self.Peer || len(got[0].Addrs) != 1 || got[0].Addrs[0].String() != addr {
			t.Errorf("stream %v: boxo reads %+v, want %s at %s", stream, got, self.Peer, addr)
		}
		if got := collect(t, c, contentOf(t, 1)); len(got) != 0 {
			t.Errorf("stream %v: of a content that nobody serves boxo reads %+v", stream, got)
		}
		other, err := cid.Decode("bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi")
		if err != nil {
			t.Fatal(err)
		}
		if got := collect(t, c, other); len(got) != 0 {
			t.Errorf("stream %v: of a hash that is not BLAKE3 boxo reads %+v", stream, got)
		}
	}
}

// jsonOnly asks for one document.
type jsonOnly struct{}

func (jsonOnly) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Accept", "application/json")
	return http.DefaultClient.Do(r)
}

// router is a Delegated Routing service that knows some providers.
type router struct {
	server.ContentRouter // nothing else is asked
	known                map[string][]types.Record
}

func (r router) FindProviders(_ context.Context, c cid.Cid, _ int) (iter.ResultIter[types.Record], error) {
	return iter.ToResultIter(iter.FromSlice(r.known[string(c.Hash())])), nil
}

func (router) GetIPNS(context.Context, ipns.Name) (*ipns.Record, error) {
	return nil, errors.ErrUnsupported
}

// ronbox asks boxo's server like any peer.
func TestServerOfBoxo(t *testing.T) {
	content := contentOf(t, 2)
	id, err := peer.Decode("12D3KooWM8sovaEGU1bmiWGWAzvs47DEcXKZZTuJnpQyVTkRs2Vn")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := multiaddr.NewMultiaddr("/ip4/198.51.100.3/udp/4001/quic-v1")
	if err != nil {
		t.Fatal(err)
	}
	known := []types.Record{&types.PeerRecord{Schema: types.SchemaPeer, ID: &id, Addrs: []types.Multiaddr{{Multiaddr: addr}}, Protocols: []string{"transport-bitswap"}}}
	s := httptest.NewServer(server.Handler(router{known: map[string][]types.Record{string(content.Hash()): known}}))
	defer s.Close()
	n := startNode(t, "RONBOX_INDEX__PEERS="+s.URL+"#eu-west-1")
	var got struct {
		Providers []struct {
			Peer     string
			Addrs    []string
			Verified bool `json:"signature_valid"`
		}
		Source string
	}
	if err := json.Unmarshal(n.run(t, "index", "providers", content.String(), "--json"), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Providers) != 1 || got.Providers[0].Peer != id.String() || !slices.Equal(got.Providers[0].Addrs, []string{addr.String()}) ||
		got.Providers[0].Verified || got.Source != "peer" {
		t.Errorf("ronbox reads %+v, want %s at %s, not verified", got, id, addr)
	}
	none := exec.Command(binary, "--data-dir", n.dir, "index", "providers", contentOf(t, 3).String())
	if out, err := none.CombinedOutput(); none.ProcessState.ExitCode() != 1 {
		t.Errorf("providers of a content that nobody serves: %v\n%s", err, out)
	}
}
