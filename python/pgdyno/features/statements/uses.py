"""The use of each parameter of a statement: the column that it is compared with or assigned to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgdyno.features.statements.parse import (
    FIXED,
    WITHOUT_EFFECT,
    WRAPPERS,
    ColumnName,
    Node,
    ParsedStatement,
    Reason,
    Role,
    Scopes,
    Source,
    Tables,
    Unusable,
    Use,
    names,
    parameter_numbers,
    parameter_of,
    parts,
    table_of,
)

_EQUAL, _LOWER, _UPPER = frozenset(("=", "<>", "!=")), frozenset((">", ">=")), frozenset(("<", "<="))
_REVERSED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


@dataclass(frozen=True)
class _Place:
    """Context of an expression. ``argument``: what a parameter without a column is there; empty where any
    constant has the same effect.
    """

    argument: str = ""
    group: int = 0
    """The AND that the expression is a part of."""


_OUTPUT = _Place()
_FILTER = _Place("part of a filter")


def parameter_uses(statement: ParsedStatement, tables: Tables) -> tuple[list[Use], frozenset[ColumnName]]:
    """Return every occurrence of every parameter, in the order of the text, and the columns into which an
    INSERT without ON CONFLICT copies columns of a query. Raises Unusable.
    """
    walk = _Walk(statement.text.encode(), tables)
    walk.statement(statement.tag, statement.body, Scopes())
    found = _with_ranges(sorted({(use.start, use.number): use for use in walk.uses}.values(), key=_start))
    if missing := parameter_numbers(statement.body) - {use.number for use in found}:
        raise Unusable(Reason.PLACE, f"${min(missing)}")
    return found, frozenset(walk.copied)


def _start(use: Use) -> int:
    return use.start


def _with_ranges(uses: Sequence[Use]) -> list[Use]:
    """Return the uses; an upper bound of a column with a lower bound beside it becomes the end of a range."""
    lower = {(use.group, use.column): use.number for use in uses if use.order in _LOWER and use.group}
    return [
        replace(use, role=Role.RANGE_END, start_number=lower[use.group, use.column])
        if use.order in _UPPER and (use.group, use.column) in lower
        else use
        for use in uses
    ]


def _copied(query: Node, targets: Sequence[ColumnName | None]) -> set[ColumnName]:
    outputs = [output["ResTarget"].get("val", {}) for output in query.get("targetList", ())]
    pairs = zip(outputs, targets, strict=False)
    return {target for output, target in pairs if target is not None and "ColumnRef" in output}


class _Walk:
    """One pass over the tree. ``uses`` and ``copied`` are the result."""

    def __init__(self, text: bytes, tables: Tables) -> None:
        self.uses: list[Use] = []
        self.copied: set[ColumnName] = set()
        self._text, self._tables = text, tables
        self._groups = 0

    # Statements

    def statement(self, tag: str, body: Node, scopes: Scopes) -> Source:
        """Visit a statement, also one of WITH. Return its output columns."""
        scopes = scopes.nested()
        for one in body.get("withClause", {}).get("ctes", ()):
            expression = one["CommonTableExpr"]
            query = self.statement(*parts(expression["ctequery"]), scopes)
            scopes.common[expression["ctename"]] = query.renamed(names(expression.get("aliascolnames")))
        match tag:
            case "SelectStmt":
                return self._select(body, scopes)
            case "InsertStmt":
                self._insert(body, scopes)
            case "UpdateStmt":
                table = self._from({"RangeVar": body["relation"]}, scopes)
                self._all_from(body.get("fromClause", ()), scopes)
                self._assignments(body.get("targetList", ()), table, scopes)
                self._expression(body.get("whereClause"), scopes, _FILTER)
            case "DeleteStmt":
                self._from({"RangeVar": body["relation"]}, scopes)
                self._all_from(body.get("usingClause", ()), scopes)
                self._expression(body.get("whereClause"), scopes, _FILTER)
            case "MergeStmt":
                self._merge(body, scopes)
        return self._outputs(body.get("returningList", ()), scopes)

    def _select(self, body: Node, scopes: Scopes, targets: Sequence[ColumnName | None] = ()) -> Source:
        outputs = Source()
        if "larg" in body:
            outputs = self.statement("SelectStmt", body["larg"], scopes)
            self.statement("SelectStmt", body["rarg"], scopes)
        self._all_from(body.get("fromClause", ()), scopes)
        for row in body.get("valuesLists", ()):
            for place, item in enumerate(row["List"]["items"]):
                self._assigned(item, targets[place] if place < len(targets) else None, scopes, is_item=True)
        if targets and "targetList" in body:
            for place, target in enumerate(body["targetList"]):
                column = targets[place] if place < len(targets) else None
                self._assigned(target["ResTarget"].get("val"), column, scopes)
        elif "targetList" in body:
            outputs = self._outputs(body["targetList"], scopes)
        for clause in ("whereClause", "havingClause"):
            self._expression(body.get(clause), scopes, _FILTER)
        for clause in ("groupClause", "sortClause", "distinctClause", "windowClause"):
            self._expression(body.get(clause), scopes, _OUTPUT)
        for clause, role in (("limitCount", Role.ROW_COUNT), ("limitOffset", Role.OFFSET)):
            if not self._as(body.get(clause), role):
                self._expression(body.get(clause), scopes, _FILTER)
        return outputs

    def _outputs(self, targets: Sequence[Node], scopes: Scopes) -> Source:
        found: dict[str, ColumnName | None] = {}
        for target in targets:
            value = target["ResTarget"].get("val", {})
            self._expression(value, scopes, _OUTPUT)
            if (fields := names(value.get("ColumnRef", {}).get("fields"))) and not fields[-1]:
                found |= scopes.all_columns(fields[0] if len(fields) > 1 else "")
                continue
            column = scopes.column(fields) if fields else None
            found[str(target["ResTarget"].get("name") or (fields or ["?column?"])[-1])] = column
        return Source(found)

    def _insert(self, body: Node, scopes: Scopes) -> None:
        name = table_of(body["relation"])
        table = self._source(name, Scopes())
        given = [column["ResTarget"]["name"] for column in body.get("cols", ())] or list(table.columns)
        targets = [table.columns.get(column) for column in given]
        conflict = body.get("onConflictClause")
        first = len(self.uses)
        if "selectStmt" in body:
            query = body["selectStmt"]["SelectStmt"]
            inner = scopes.nested()
            if "withClause" in query or "larg" in query:
                self.statement("SelectStmt", query, inner)
            else:
                self._select(query, inner, targets)
                if conflict is None:
                    self.copied |= _copied(query, targets)
        self.uses[first:] = [
            replace(use, is_inserted=use.role is Role.ASSIGNED, on_conflict=conflict is not None)
            for use in self.uses[first:]
        ]
        scopes.add(body["relation"].get("alias", {}).get("aliasname", name[1]), table)
        if conflict is not None:
            scopes.add("excluded", Source())
            self._assignments(conflict.get("targetList", ()), table, scopes)
            self._expression(conflict.get("whereClause"), scopes, _FILTER)
            self._expression(conflict.get("infer"), scopes, _FILTER)

    def _merge(self, body: Node, scopes: Scopes) -> None:
        table = self._from({"RangeVar": body["relation"]}, scopes)
        self._from(body["sourceRelation"], scopes)
        self._expression(body.get("joinCondition"), scopes, _FILTER)
        for one in body.get("mergeWhenClauses", ()):
            when = one["MergeWhenClause"]
            self._expression(when.get("condition"), scopes, _FILTER)
            if "values" not in when:
                self._assignments(when.get("targetList", ()), table, scopes)
                continue
            given = [target["ResTarget"]["name"] for target in when.get("targetList", ())]
            columns = given or list(table.columns)
            first = len(self.uses)
            for column, item in zip(columns, when["values"], strict=False):
                self._assigned(item, table.columns.get(column), scopes, is_item=True)
            self.uses[first:] = [
                replace(use, is_inserted=use.role is Role.ASSIGNED) for use in self.uses[first:]
            ]

    def _assignments(self, targets: Sequence[Node], table: Source, scopes: Scopes) -> None:
        for one in targets:
            target = one["ResTarget"]
            column = None if "indirection" in target else table.columns.get(target.get("name", ""))
            value = target.get("val", {})
            if row := value.get("MultiAssignRef"):
                items = row["source"].get("RowExpr", {}).get("args", ())
                if len(items) == row["ncolumns"]:
                    value = items[row["colno"] - 1]
                else:  # a subquery or row(t.*), which every column repeats
                    value = row["source"] if row["colno"] == 1 else None
            self._assigned(value, column, scopes)

    def _assigned(
        self, value: Node | None, column: ColumnName | None, scopes: Scopes, *, is_item: bool = False
    ) -> None:
        is_item = is_item and value is not None and "ParamRef" in value
        if column is None or not self._as(value, Role.ASSIGNED, column=column, is_item=is_item):
            self._expression(value, scopes, _OUTPUT)

    # FROM

    def _all_from(self, items: Sequence[Node], scopes: Scopes) -> None:
        for item in items:
            self._from(item, scopes)

    def _from(self, item: Node, scopes: Scopes) -> Source:
        tag, body = parts(item)
        alias = body.get("alias", {})
        renamed = names(alias.get("colnames"))
        found = Source()
        match tag:
            case "RangeVar":
                found = self._source(table_of(body), scopes).renamed(renamed)
                scopes.add(alias.get("aliasname", body["relname"]), found)
            case "RangeSubselect":
                found = self.statement(*parts(body["subquery"]), scopes).renamed(renamed)
                scopes.add(alias.get("aliasname", ""), found)
            case "JoinExpr":
                self._from(body["larg"], scopes)
                self._from(body["rarg"], scopes)
                self._expression(body.get("quals"), scopes, _FILTER)
            case _:
                # Functions, XMLTABLE, JSON_TABLE, TABLESAMPLE: the columns are not those of a table.
                self._expression(item, scopes, _FILTER)
                scopes.add(alias.get("aliasname", ""), found)
        return found

    def _source(self, name: tuple[str, str], scopes: Scopes) -> Source:
        if not name[0] and (common := scopes.query(name[1])) is not None:
            return common
        table = self._tables.get(name)
        return Source({column: (name, column) for column in table.columns} if table else {})

    # Expressions

    def _expression(self, node: Any, scopes: Scopes, place: _Place) -> None:
        for one in node if isinstance(node, list) else [node]:
            if isinstance(one, dict):
                self._node(one, scopes, place)

    def _node(self, node: Node, scopes: Scopes, place: _Place) -> None:
        tag, body = parts(node)
        match tag:
            case "ParamRef" | "TypeCast" if self._parameter(node) is not None:
                self._without_column(node, place)
            case "A_Expr":
                self._operator(body, scopes, place)
            case "BoolExpr":
                self._groups += 1
                group = self._groups if body["boolop"] == "AND_EXPR" else 0
                self._expression(body["args"], scopes, replace(place, group=group))
            case "SubLink":
                self._subquery(body, scopes, place)
            case "FuncCall":
                self._function(body, scopes, place)
            case "CoalesceExpr" | "MinMaxExpr":
                self._alternatives(body["args"], scopes, place)
            case "CaseExpr":
                self._case(body, scopes, place)
            case "SelectStmt":
                self.statement(tag, body, scopes)
            case _:
                # A node with its tag, or the content of one without.
                for value in body.values() if tag and isinstance(body, dict) else node.values():
                    self._expression(value, scopes, place)

    def _subquery(self, body: Node, scopes: Scopes, place: _Place) -> None:
        outputs = self.statement(*parts(body["subselect"]), scopes)
        first = next(iter(outputs.columns.values()), None)
        if not (first and self._as(body.get("testexpr"), Role.VALUE, column=first)):
            self._expression(body.get("testexpr"), scopes, place)

    def _operator(self, body: Node, scopes: Scopes, place: _Place) -> None:
        left, right = body.get("lexpr"), body.get("rexpr", {})
        name = (names(body.get("name")) or [""])[-1]
        match body["kind"]:
            case "AEXPR_IN":
                for item in right["List"]["items"] if "List" in right else [right]:
                    self._pair(left, item, "=", scopes, place)
                    self._side(item, scopes, place)
                self._side(left, scopes, place)
            case "AEXPR_BETWEEN" | "AEXPR_NOT_BETWEEN" | "AEXPR_BETWEEN_SYM" | "AEXPR_NOT_BETWEEN_SYM":
                self._groups += 1
                within = replace(place, group=self._groups)
                for item, order in zip(right["List"]["items"], (">=", "<="), strict=True):
                    self._pair(left, item, order, scopes, within)
                    self._side(item, scopes, place)
                self._side(left, scopes, place)
            case "AEXPR_OP_ANY" | "AEXPR_OP_ALL":
                elements = right.get("A_ArrayExpr", {}).get("elements")
                column, wrapper = self._column(left, scopes)
                if elements is not None:
                    for item in elements:
                        self._pair(left, item, "=", scopes, place)
                        self._side(item, scopes, place)
                elif not (column and self._as(right, Role.LIST, column=column, wrapper=wrapper)):
                    self._expression(right, scopes, place)
                self._side(left, scopes, place)
            case "AEXPR_OP" if left is None:
                self._expression(right, scopes, place)
            case kind:
                self._pair(left, right, "like" if "LIKE" in kind else name, scopes, place)
                self._pair(right, left, _REVERSED.get(name, name), scopes, place)
                within = replace(place, argument=f"operand of {name}") if place.argument else place
                for side in (left, right):
                    self._side(side, scopes, within)

    def _side(self, node: Any, scopes: Scopes, place: _Place) -> None:
        """Visit an operand unless a pair has already used it."""
        found = self._parameter(node)
        if found is None or all(use.start != found.start for use in self.uses):
            if found is None and isinstance(node, dict) and "RowExpr" in node:
                for one in node["RowExpr"].get("args", ()):
                    self._side(one, scopes, place)
            else:
                self._expression(node, scopes, place)

    def _pair(self, left: Any, right: Any, name: str, scopes: Scopes, place: _Place) -> None:
        """Record the right operand, a parameter, if the left one is a column or a parameter, too."""
        if isinstance(left, dict) and isinstance(right, dict) and "RowExpr" in left and "RowExpr" in right:
            items = (side["RowExpr"].get("args", ()) for side in (left, right))
            for one, other in zip(*items, strict=False):
                self._pair(one, other, name, scopes, replace(place, group=0))
            return
        column, wrapper = self._column(left, scopes)
        if column is None:
            if name in _EQUAL and self._parameter(left) and self._parameter(right):
                self._as(right, Role.CONSTANT)  # WHERE 1 = 1
            return
        if name in _EQUAL or name == "IS DISTINCT FROM":
            found = self._parameter(right)
            is_list = found is not None and self._text[found.end :].lstrip().startswith(b"/*, ... */")
            self._as(right, Role.LIST if is_list else Role.VALUE, column=column, wrapper=wrapper)
        elif name in _LOWER or name in _UPPER:
            self._as(right, Role.BOUND, column=column, wrapper=wrapper, group=place.group, order=name)
        elif name == "like":
            self._as(right, Role.PATTERN, column=column, wrapper=wrapper)

    def _function(self, body: Node, scopes: Scopes, place: _Place) -> None:
        name = (names(body.get("funcname")) or [""])[-1]
        if name.startswith("pg_"):  # locks, sleeps, resets of statistics
            raise Unusable(Reason.SYSTEM, name)
        for number, argument in enumerate(body.get("args", ())):
            fixed = FIXED.get((name, number), "")
            if fixed and self._as(argument, Role.FIXED, fixed=fixed):
                continue
            words = ("argument", argument.get("NamedArgExpr", {}).get("name", ""), "of", name)
            inside = place if name in WITHOUT_EFFECT else _Place(" ".join(filter(None, words)))
            self._expression(argument, scopes, inside)
        self._expression(body.get("agg_filter"), scopes, _FILTER)
        for part in ("agg_order", "over"):
            self._expression(body.get(part), scopes, place)

    def _alternatives(self, values: Sequence[Node], scopes: Scopes, place: _Place) -> None:
        column = next((found for one in values if (found := self._column(one, scopes)[0])), None)
        for one in values:
            if not (column and self._as(one, Role.VALUE, column=column)):
                self._expression(one, scopes, place)

    def _case(self, body: Node, scopes: Scopes, place: _Place) -> None:
        compared, wrapper = self._column(body.get("arg"), scopes)
        for one in body["args"]:
            when = one["CaseWhen"]
            if not (compared and self._as(when["expr"], Role.VALUE, column=compared, wrapper=wrapper)):
                self._expression(when["expr"], scopes, place)
            self._expression(when["result"], scopes, place)
        self._expression(body.get("defresult"), scopes, place)
        self._expression(body.get("arg"), scopes, place)

    # Leaves

    def _column(self, node: Any, scopes: Scopes) -> tuple[ColumnName | None, str]:
        """Return the column that an operand is, and the function around it; else None."""
        tag, body = parts(node) if isinstance(node, dict) else ("", {})
        if tag == "ColumnRef":
            return scopes.column(names(body["fields"])), ""
        if tag in ("TypeCast", "CollateClause"):
            return self._column(body["arg"], scopes)
        if tag == "FuncCall" and len(body.get("args", ())) == 1:
            name = names(body["funcname"])[-1]
            column, inner = self._column(body["args"][0], scopes)
            if name in WRAPPERS and not inner:
                return column, name
        return None, ""

    def _parameter(self, node: Any) -> Use | None:
        return parameter_of(node, self._text)

    def _as(self, node: Any, role: Role, **facts: Any) -> bool:
        """Record a parameter with its role. Return False if the node is none."""
        found = self._parameter(node)
        if found is None:
            return False
        if found.wrapper:  # the statement has the function itself
            facts["wrapper"] = ""
        self.uses.append(replace(found, **{"wrapper": "", **facts}, role=role))
        return True

    def _without_column(self, node: Node, place: _Place) -> None:
        if place.argument:
            self._as(node, Role.ARGUMENT, place=place.argument)
        else:
            self._as(node, Role.CONSTANT)
