package beast2

// MaxDepth is the bound on nesting.
const MaxDepth = maxDepth

// TypeFromJSON reads the notation of a type.
func TypeFromJSON(data []byte) (Type, error) {
	doc, err := parseJSON(data)
	if err != nil {
		return Null, err
	}
	r := jsonReader{lists: map[string]*list{}}
	return r.typ(&doc, 0)
}

// TypeToJSON writes the notation of a type.
func TypeToJSON(t Type) string {
	w := jsonWriter{used: map[*list]bool{}, listNames: map[*list]string{}}
	w.findUsed(t)
	w.typ(t)
	return string(w.b)
}

var CheckWTF8 = checkWTF8
