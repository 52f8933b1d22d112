package beast2

import "strconv"

// kindOf maps the names of kinds, in the notation of types.
func kindOf(name string) (Kind, bool) {
	for k, n := range kindNames {
		if n == name {
			return Kind(k), true
		}
	}
	return 0, false
}

// typ reads the notation of a type that has depth composites around it.
func (r *jsonReader) typ(j *jsonValue, depth int) (Type, error) {
	if j.kind == jsonString {
		if k, ok := kindOf(j.text); ok && k.primitive() {
			return primitives[k], nil
		}
		return Null, r.fail("%q is not a primitive type", j.text)
	}
	if j.kind != jsonObject || len(j.names) != 1 {
		return Null, r.fail("want a type, as a string or an object with one name, got %s", j.kind)
	}
	name, arg := j.names[0], &j.items[0]
	k, ok := kindOf(name)
	if !ok && name != "Option" || ok && k.primitive() {
		return Null, r.fail("%q is not a type with parameters", name)
	}
	if depth >= maxDepth {
		return Null, r.fail("type nests deeper than %d", maxDepth)
	}
	r.path.push(named(name))
	var t Type
	var err error
	if name == "Option" {
		if t, err = r.typ(arg, depth+1); err == nil {
			t = Option(t)
		}
	} else {
		t, err = r.parametric(k, arg, depth)
	}
	if err != nil {
		return Null, err
	}
	r.path.pop()
	return t, nil
}

func (r *jsonReader) parametric(k Kind, j *jsonValue, depth int) (Type, error) {
	n := node{kind: k}
	var err error
	switch k {
	case KindRecursive:
		return r.recursive(j, depth)
	case KindArray, KindSet, KindRef:
		n.elem, err = r.typ(j, depth+1)
	case KindDict:
		var key, value *jsonValue
		if key, value, err = r.pair(j, "key type, value type"); err != nil {
			return Null, err
		}
		r.path.push(indexed(0))
		if n.key, err = r.typ(key, depth+1); err != nil {
			return Null, err
		}
		r.path.pop()
		r.path.push(indexed(1))
		if n.elem, err = r.typ(value, depth+1); err != nil {
			return Null, err
		}
		r.path.pop()
	case KindStruct, KindVariant:
		n.list, n.use, err = r.list(fieldList, j, depth)
	case KindFunction, KindAsyncFunction:
		var parts []*jsonValue
		if parts, err = r.members(j, "inputs", "output"); err != nil {
			return Null, err
		}
		r.path.push(named("inputs"))
		if n.list, n.use, err = r.list(inputList, parts[0], depth); err != nil {
			return Null, err
		}
		r.path.pop()
		r.path.push(named("output"))
		if n.elem, err = r.typ(parts[1], depth+1); err != nil {
			return Null, err
		}
		r.path.pop()
	}
	if err != nil {
		return Null, err
	}
	t, err := newType(n)
	if err != nil {
		return Null, r.fail("%v", err)
	}
	return t, nil
}

func (r *jsonReader) recursive(j *jsonValue, depth int) (Type, error) {
	if err := r.want(jsonNumber, j); err != nil {
		return Null, err
	}
	up, err := strconv.Atoi(j.text)
	if err != nil || up < 1 || up > depth {
		return Null, r.fail("recursion number %s is not in 1 to %d, the composites around it", j.text, depth)
	}
	return newRecursive(int64(up))
}

// list reads a list of fields or inputs: the list itself, a definition around it, or a use of an earlier definition.
// The result is true for a use.
func (r *jsonReader) list(kind listKind, j *jsonValue, depth int) (*list, bool, error) {
	j, label, def, use, err := r.label(j)
	if err != nil {
		return nil, false, err
	}
	known, taken := r.lists[label]
	switch {
	case use && !taken:
		return nil, false, r.fail("$use of %q, which no $def before it has", label)
	case use && known == nil:
		return nil, false, r.fail("the list %q contains itself", label)
	case use && known.kind != kind:
		return nil, false, r.fail("%q is of another kind: %s, used as %s", label, known.kind, kind)
	case use && (known.reach > depth+1 || known.height > maxDepth-depth-1):
		return nil, false, r.fail("%q does not fit here: it refers to %d enclosing types and nests %d deep", label, known.reach, known.height)
	case use:
		return known, true, nil
	case def && taken:
		return nil, false, r.fail("$def of %q is there twice", label)
	}
	if def {
		r.lists[label] = nil
		r.path.push(named("v"))
	}
	if err := r.want(jsonArray, j); err != nil {
		return nil, false, err
	}
	fields := make([]Field, len(j.items))
	for i := range j.items {
		item := &j.items[i]
		r.path.push(indexed(i))
		if kind == fieldList {
			var name *jsonValue
			if name, item, err = r.pair(item, "name, type"); err != nil {
				return nil, false, err
			}
			if err := r.want(jsonString, name); err != nil {
				return nil, false, err
			}
			fields[i].Name = name.text
			r.path.push(indexed(1))
		}
		if fields[i].Type, err = r.typ(item, depth+1); err != nil {
			return nil, false, err
		}
		if kind == fieldList {
			r.path.pop()
		}
		r.path.pop()
	}
	l, err := newList(kind, fields)
	if err != nil {
		return nil, false, r.fail("%v", err)
	}
	if def {
		r.path.pop()
		r.lists[label] = l
	}
	return l, false, nil
}
