package pmtiles_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"ronbox/engines/edge/pmtiles"
)

// A pack is opened once, and its tiles are read by zoom, column and row.
func Example() {
	f, err := os.Open(filepath.Join("..", "..", "..", "testdata", "packs", "stamen_toner_z3.pmtiles"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := pmtiles.Open(f, info.Size(), pmtiles.Options{Slots: pmtiles.NewSlots(), MaxTile: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	tile, err := r.Tile(context.Background(), 3, 1, 1, func(length int64) error { return nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("zoom %d to %d, a tile begins with %q\n", r.MinZoom, r.MaxZoom, tile[1:4])
	// Output: zoom 0 to 3, a tile begins with "PNG"
}
