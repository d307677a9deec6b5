"""A kind of edit from outside: a level of which everything is done at once, in one iteration."""

from tilewright.tiling import Edit, Resize


class Whole(Edit, frozen=True):
    """Give a level's iterations all elements that there are."""

    stage: str
    axis: str
    size: int
    to: int

    @classmethod
    def around(cls, at):
        return [cls(*level.place, level.whole) for level in at.levels if level.size < level.whole]

    def of(self, nest):
        return Resize(self.stage, self.axis, self.size, self.to).of(nest)
