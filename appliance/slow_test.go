package appliance

import "testing"

// A disk that stalls makes the node write-unready first: reads and probes go on, and it heals by itself.
func TestSlowDiskTakesWritesFirst(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	release := r.holdStore()
	r.writable(false)
	for path, status := range map[string]int{
		"/readyz": 503, "/readyz?plane=write": 503, "/readyz?plane=read": 200, "/healthz": 200, "/registry/head": 200, "/registry/1": 200,
	} {
		if resp := r.raw("GET", path, ""); resp.StatusCode != status {
			t.Errorf("%s is %d while the disk stalls, want %d", path, resp.StatusCode, status)
		}
	}
	release()
	r.writable(true)
	if _, err := r.tcp().Propose(t.Context(), draft(2, "x"), ""); err != nil {
		t.Errorf("healed: %v", err)
	}
}
