// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// Where rows are cut, the start of an update stays what it is, but in a type that holds the last place as well: XLA:CPU
// clamps it to that in the start's own type. (Here the last place fits, so that the module as it is can be run, too.)

// CHECK: stablehlo.while
// CHECK: stablehlo.convert %{{.*}} : (tensor<i8>) -> tensor<i32>
// CHECK: %[[START:.*]] = stablehlo.convert %{{.*}} : (tensor<i8>) -> tensor<i32>
// CHECK: stablehlo.dynamic_update_slice %{{.*}}, %{{.*}}, %{{.*}}, %[[START]] : (tensor<{{[0-9]+}}x150xf32>, tensor<{{[0-9]+}}x63xf32>, tensor<i32>, tensor<i32>)
// CHECK-NOT: tensor<i8>, tensor<i8>

func.func @main(%a: tensor<400x4xf32>, %b: tensor<150x4xf32>, %c: tensor<63x4xf32>, %v: tensor<150xf32>) -> tensor<400xf32> {
  %start = stablehlo.constant dense<60> : tensor<i8>
  %none = stablehlo.constant dense<0> : tensor<i8>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<400x4xf32>, tensor<150x4xf32>) -> tensor<400x150xf32>
  %1 = stablehlo.dot_general %a, %c, contracting_dims = [1] x [1] : (tensor<400x4xf32>, tensor<63x4xf32>) -> tensor<400x63xf32>
  %2 = stablehlo.dynamic_update_slice %0, %1, %none, %start : (tensor<400x150xf32>, tensor<400x63xf32>, tensor<i8>, tensor<i8>) -> tensor<400x150xf32>
  %3 = stablehlo.dot_general %2, %v, contracting_dims = [1] x [0] : (tensor<400x150xf32>, tensor<150xf32>) -> tensor<400xf32>
  return %3 : tensor<400xf32>
}
