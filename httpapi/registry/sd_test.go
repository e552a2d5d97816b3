package registry

import (
	"reflect"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/fleet"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	registryapi "ronbox/httpapi/wire/registry"
)

func TestTargetGroup(t *testing.T) {
	for _, tt := range []struct{ endpoint, target, scheme, path string }{
		{"https://m.example/metrics/x", "m.example:443", "https", "/metrics/x"},
		{"http://m.example", "m.example:80", "http", ""},
		{"https://m.example:9443/", "m.example:9443", "https", ""},
		{"https://[2001:db8::1]:9", "[2001:db8::1]:9", "https", ""},
	} {
		got := targetGroup(fleet.Service{ID: "service/m@eu#1", What: "m", Region: "eu", Endpoint: tt.endpoint})
		want := registryapi.TargetGroup{Targets: []string{tt.target}, Labels: map[string]string{
			"__scheme__": tt.scheme, "__meta_ronbox_id": "service/m@eu#1", "__meta_ronbox_what": "m",
			"__meta_ronbox_region": "eu",
		}}
		if tt.path != "" {
			want.Labels["__metrics_path__"] = tt.path
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", tt.endpoint, got, want)
		}
	}
}

// The services are those of the version that is asked for, computed once.
func TestDiscovery(t *testing.T) {
	at := func(version uint64, raw string) *tables.HeadView {
		it, err := record.ParseItem([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		items, err := record.NewItems([]record.Item{it})
		if err != nil {
			t.Fatal(err)
		}
		return &tables.HeadView{
			Head: record.Head{Version: version, Hash: b3.Sum([]byte(raw))}, Items: items,
		}
	}
	one := at(1, `{"id":"service/a@eu#1","kind":"service","endpoint":"https://a.example","meta":{}}`)
	two := at(2, `{"id":"service/b@eu#1","kind":"service","endpoint":"https://b.example","meta":{}}`)
	var d discovery
	for _, head := range []*tables.HeadView{one, one, two, one} {
		want := map[uint64]string{1: "a", 2: "b"}[head.Head.Version]
		if got := d.of(head); len(got) != 1 || got[0].What != want {
			t.Errorf("version %d: %+v", head.Head.Version, got)
		}
	}
	d.of(two)
	if n := testing.AllocsPerRun(10, func() { d.of(two) }); n != 0 {
		t.Errorf("%v allocations for a version that is known", n)
	}
}
