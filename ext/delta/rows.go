package delta

import (
	"errors"
	"fmt"
)

// What an action of a checkpoint takes in memory, and an element of its lists and maps, besides the
// texts, in bytes.
const (
	actionMemory  = 512
	elementMemory = 48
)

// rowReader reads the rows of a checkpoint. After an error it reads nothing.
type rowReader struct {
	file  *parquetFile
	found map[string][]*fileColumn
	err   error
}

// columns returns those below a name, of which there are so many or none.
func (r *rowReader) columns(name string, n, repeated int, kinds ...int64) []*fileColumn {
	if r.err != nil {
		return nil
	}
	if found, ok := r.found[name]; ok {
		return found
	}
	found := r.file.find(name)
	if len(found) != 0 && len(found) != n {
		r.err = fmt.Errorf("%s has %d columns instead of %d", name, len(found), n)
	}
	for _, c := range found {
		fits := c.maxRep == repeated
		for i, k := range kinds {
			if c.kind == k {
				break
			}
			fits = fits && i < len(kinds)-1
		}
		if !fits {
			r.err = c.wrong(errors.New("it has another type than Delta's protocol says"))
		}
	}
	r.found[name] = found
	if r.err != nil {
		return nil
	}
	return found
}

// one reads the value that a row has; false if it is null.
func (r *rowReader) one(name string, kinds ...int64) (v value, ok bool) {
	for _, c := range r.columns(name, 1, 0, kinds...) {
		var there bool
		if there, r.err = c.peek(); r.err == nil && !there {
			r.err = c.wrong(errCut)
		}
		if r.err == nil {
			v, ok, r.err = c.next()
		}
	}
	return v, ok
}

func (r *rowReader) text(name string) *string {
	if v, ok := r.one(name, kindBytes); ok {
		return &v.text
	}
	return nil
}

func (r *rowReader) number(name string) *int64 {
	if v, ok := r.one(name, kindInt64, kindInt32); ok {
		return &v.n
	}
	return nil
}

func (r *rowReader) flag(name string) *bool {
	if v, ok := r.one(name, kindBool); ok {
		is := v.n != 0
		return &is
	}
	return nil
}

// many reads the list that a row has.
func (r *rowReader) many(c *fileColumn) (all []*string) {
	for first := true; r.err == nil; first = false {
		there, err := c.peek()
		switch {
		case err != nil:
			r.err = err
		case first && (!there || c.rep != 0):
			r.err = c.wrong(errCut)
		case !there || !first && c.rep == 0:
			return all
		case !first && c.def < c.elementDef:
			// Nothing would be paid for it, and a page of 30 bytes can have ten million.
			r.err = c.wrong(errors.New("a list goes on with an element that is none"))
		default:
			empty := c.def < c.elementDef
			v, ok, err := c.next()
			if r.err = err; err != nil || empty {
				continue
			}
			if r.err = r.file.pay(elementMemory); ok {
				all = append(all, &v.text)
			} else {
				all = append(all, nil)
			}
		}
	}
	return nil
}

func (r *rowReader) list(name string) (all []string) {
	for _, c := range r.columns(name, 1, 1, kindBytes) {
		for _, s := range r.many(c) {
			all = append(all, given(s))
		}
	}
	return all
}

func (r *rowReader) mapping(name string) map[string]*string {
	c := r.columns(name, 2, 1, kindBytes)
	if c == nil {
		return nil
	}
	keys, vals := r.many(c[0]), r.many(c[1])
	if len(keys) != len(vals) && r.err == nil {
		r.err = fmt.Errorf("%s has %d keys and %d values", name, len(keys), len(vals))
	}
	if r.err != nil || len(keys) == 0 {
		return nil
	}
	all := make(map[string]*string, len(keys))
	for i, k := range keys {
		all[given(k)] = vals[i]
	}
	return all
}

func (r *rowReader) texts(name string) map[string]string {
	all := map[string]string{}
	for k, v := range r.mapping(name) {
		all[k] = given(v)
	}
	return all
}

// next reads a row. An action is there if that is there by which Delta tells it from others.
func (r *rowReader) next() row {
	txn := rowTxn{Version: given(r.number("txn.version"))}
	add := rowAdd{
		Partition: r.mapping("add.partitionValues"), Size: given(r.number("add.size")), Modified: given(r.number("add.modificationTime")),
		DataChange: given(r.flag("add.dataChange")), Stats: r.text("add.stats"), Tags: r.mapping("add.tags"),
	}
	gone := rowRemove{
		Deleted: r.number("remove.deletionTimestamp"), DataChange: given(r.flag("remove.dataChange")), Extended: r.flag("remove.extendedFileMetadata"),
		Partition: r.mapping("remove.partitionValues"), Size: r.number("remove.size"),
	}
	meta := rowMeta{
		Name: r.text("metaData.name"), Format: rowFormat{given(r.text("metaData.format.provider")), r.texts("metaData.format.options")},
		Schema: given(r.text("metaData.schemaString")), Partition: r.list("metaData.partitionColumns"), Config: r.texts("metaData.configuration"),
		CreatedTime: r.number("metaData.createdTime"),
	}
	proto := rowProto{MinWriter: int32(given(r.number("protocol.minWriterVersion"))), WriterFeatures: r.list("protocol.writerFeatures")}
	dom := rowDomain{Config: given(r.text("domainMetadata.configuration")), Removed: given(r.flag("domainMetadata.removed"))}

	// Only what is there is kept: a billion rows of nulls leave nothing.
	var one row
	if p := r.text("txn.appId"); p != nil {
		t := txn
		t.App, one.Txn = *p, &t
	}
	if p := r.text("add.path"); p != nil {
		a := add
		a.Path, one.Add = *p, &a
	}
	if p := r.text("remove.path"); p != nil {
		g := gone
		g.Path, one.Remove = *p, &g
	}
	if p := r.text("metaData.id"); p != nil {
		m := meta
		m.ID, one.Meta = *p, &m
	}
	if p := r.number("protocol.minReaderVersion"); p != nil {
		pr := proto
		pr.MinReader, one.Protocol = int32(*p), &pr
	}
	if p := r.text("domainMetadata.domain"); p != nil {
		d := dom
		d.Domain, one.Domain = *p, &d
	}
	if r.err == nil && one != (row{}) {
		r.err = r.file.pay(actionMemory)
	}
	return one
}
