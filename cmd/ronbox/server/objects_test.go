package server

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines/cluster/member"
	clusterapi "ronbox/httpapi/wire/cluster"
	edgeapi "ronbox/httpapi/wire/edge"
)

// getObject reads an object over the public port.
func (r *rig) getObject(path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.Addr()+path, nil)
	must(r.t, err)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	must(r.t, err)
	text, err := io.ReadAll(resp.Body)
	must(r.t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, string(text)
}

// fileOf returns the path of the file of an object.
func (r *rig) fileOf(d b3.Digest) string {
	name := hex.EncodeToString(d[:])
	return filepath.Join(r.cfg.Node.DataDir, "edge", "cas", "b3", name[:2], name[2:])
}

// An object that was put is on two members once the answer has come. The leader fetches a file that
// it has lost, and the other member serves the object when it leads.
func TestObjectsSurviveTheLeader(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	put := func(body string) edgeapi.Object {
		t.Helper()
		c, _ := a.putToken()
		o, err := c.PutObject(t.Context(), edgeapi.ObjectPut{
			Body: strings.NewReader(body), Size: int64(len(body)), Type: "text/plain; charset=utf-8",
		})
		must(t, err)
		return o
	}
	if o := put("of one"); !o.New || o.Copies != 1 {
		t.Errorf("a cluster of one: %+v", o)
	}
	b := join(t, a)
	b.votes(t, a)
	big := strings.Repeat("0123456789abcdef", 3<<20/16)
	for _, text := range []string{"hello", "", big, "of one"} {
		d := b3.Sum([]byte(text))
		if o := put(text); o.Copies != 2 || o.B3 != d.String() {
			t.Errorf("%+v", o)
		}
		kept, err := os.ReadFile(b.fileOf(d))
		if must(t, err); !bytes.Equal(kept, []byte(text)) {
			t.Errorf("the other member has %.40q, want %.40q", kept, text)
		}
		must(t, os.Remove(a.fileOf(d)))
		a.edge().Purge()
		path := "/edge/assets/b3/" + hex.EncodeToString(d[:])
		if code, got := a.getObject(path); code != http.StatusOK || got != text {
			t.Errorf("the leader has lost it: %d, %d bytes", code, len(got))
		}
	}
	id, err := member.At(a.cfg.Node.DataDir).Identity()
	must(t, err)
	_, err = a.cluster().LeaveCluster(t.Context(), clusterapi.LeaveRequest{})
	must(t, err)
	if code := a.end(); code != process.ExitClean {
		t.Errorf("exit %d\n%s", code, a.log)
	}
	must(t, a.member.Close()) // the process would have ended
	b.leads()
	for _, text := range []string{"hello", "", big, "of one"} {
		d := b3.Sum([]byte(text))
		if code, got := b.getObject("/edge/assets/b3/" + hex.EncodeToString(d[:])); code != http.StatusOK || got != text {
			t.Errorf("the next leader: %d, %d bytes", code, len(got))
		}
	}

	client := id.Client()
	defer client.CloseIdleConnections()
	d := b3.Sum([]byte("stranger"))
	at := "https://" + b.cfg.Cluster.Address() + "/objects/" + hex.EncodeToString(d[:])
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, at, strings.NewReader("stranger"))
	must(t, err)
	resp, err := client.Do(req)
	must(t, err)
	if must(t, resp.Body.Close()); resp.StatusCode != http.StatusForbidden || exists(b.fileOf(d)) {
		t.Errorf("a node that has left writes: %d", resp.StatusCode)
	}
	b.halt()
}
