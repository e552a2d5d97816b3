package initdir

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/edge/pack"
	edgeapi "ronbox/httpapi/edge"
)

// MapPaths returns the paths of the pages that draw the packs of a configuration.
func MapPaths(cfg *config.Config) (paths []string) {
	if !cfg.Edge.Enabled {
		return nil
	}
	for _, file := range packFiles(cfg.PacksDir()) {
		id := filepath.Base(file)
		paths = append(paths, edgeapi.PreviewPath+strings.TrimSuffix(id, filepath.Ext(id)))
	}
	return paths
}

// packFiles returns the names of the packs in a folder, or nil if it cannot be read.
func packFiles(dir string) (files []string) {
	for _, kind := range []pack.Kind{pack.MBTiles, pack.PMTiles} {
		found, _ := filepath.Glob(filepath.Join(dir, "*."+string(kind)))
		files = append(files, found...)
	}
	slices.Sort(files)
	return files
}

// CopyPacks copies the packs of a folder to the folder of a new node.
func CopyPacks(cfg *config.Config, from string) error {
	if len(packFiles(from)) == 0 {
		return fmt.Errorf("packs: %s holds no *.%s and no *.%s", from, pack.PMTiles, pack.MBTiles)
	}
	return os.CopyFS(cfg.Path(config.PacksName), os.DirFS(from))
}
