// Command world writes an MBTiles file of the whole world with pictures of 0.5 to 6 KiB, which go-pmtiles converts to an archive of which extracts are made. Usage:
// world FILE ZOOM. Each picture is the signature of PNG and random bytes.
package main

import (
	"fmt"
	"os"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

const script = `CREATE TABLE metadata (name text, value text);
INSERT INTO metadata VALUES ('name', 'world'), ('format', 'png'), ('minzoom', '0'), ('maxzoom', '%[1]s'), ('bounds', '-180,-85,180,85');
CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);
WITH RECURSIVE z(z) AS (SELECT 0 UNION ALL SELECT z + 1 FROM z WHERE z < %[1]s),
  n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < 1 << %[1]s)
INSERT INTO tiles SELECT z, x.n, y.n, X'89504E470D0A1A0A' || randomblob(500 + abs(random()) %% 5500)
  FROM z JOIN n AS x ON x.n < 1 << z JOIN n AS y ON y.n < 1 << z;
CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row);`

func main() {
	c, err := sqlite.OpenConn(os.Args[1], sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err == nil {
		err = sqlitex.ExecuteScript(c, fmt.Sprintf(script, os.Args[2]), nil)
	}
	if err != nil {
		panic(err)
	}
	if err := c.Close(); err != nil {
		panic(err)
	}
}
