module ronbox

go 1.26.0
